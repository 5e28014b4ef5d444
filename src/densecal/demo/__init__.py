"""The demo: a small classifier's outputs inside the package, and the comparison that shows what DAC is for."""

from __future__ import annotations

from densecal.demo.run import METHODS, Demo, load_demo, run_demo

__all__ = ["METHODS", "Demo", "load_demo", "run_demo"]
