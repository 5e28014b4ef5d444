"""The paper: its classifiers, training recipes, protocol, tables and figures; see README.md for the commands."""
