"""Builds the site: runs the tutorials and generates pages from docstrings and results."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for the package reproduction
