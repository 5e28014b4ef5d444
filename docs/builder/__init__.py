"""Builds the site: runs the tutorials and generates pages from docstrings and results."""
