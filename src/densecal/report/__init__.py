"""A self-contained HTML report for readers who do not read code."""

from __future__ import annotations

from densecal.report.page import render_report, write_report
from densecal.report.verdict import Verdict, judge

__all__ = ["Verdict", "judge", "render_report", "write_report"]
