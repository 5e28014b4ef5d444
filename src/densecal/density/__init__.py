"""Distances of inputs from the training data."""
