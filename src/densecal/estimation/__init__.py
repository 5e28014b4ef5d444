"""Estimates without labels: the accuracy of a classifier on a batch, and temperatures for that batch."""
