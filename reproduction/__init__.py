"""Reproduction of the paper: classifiers, training, protocol, tables and figures. See README.md for the commands."""
