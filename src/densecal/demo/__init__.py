"""The demo: a comparison of methods on outputs of a small classifier, bundled with the package."""

from __future__ import annotations

from densecal.demo.data_sets import Demo, load_demo, load_domains, open_demo
from densecal.demo.run import METHODS, DemoResult, run_demo

__all__ = ["METHODS", "Demo", "DemoResult", "load_demo", "load_domains", "open_demo", "run_demo"]
