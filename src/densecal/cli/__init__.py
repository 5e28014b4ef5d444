"""The densecal command."""

from __future__ import annotations

from densecal.cli.app import app, main

__all__ = ["app", "main"]
