"""Fitted calibrators as torch modules."""
