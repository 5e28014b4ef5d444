"""The demo: a small classifier's outputs inside the package, and the comparison that shows what DAC is for."""

from __future__ import annotations

from densecal.demo.data_sets import Demo, load_demo, open_demo
from densecal.demo.run import METHODS, DemoResult, run_demo

__all__ = ["METHODS", "Demo", "DemoResult", "load_demo", "open_demo", "run_demo"]
