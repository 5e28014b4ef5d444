"""The paper: its classifiers, training recipes, protocol, tables and figures."""

from __future__ import annotations
