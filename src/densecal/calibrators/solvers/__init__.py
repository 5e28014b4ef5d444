"""Solvers shared by several methods."""
