"""A self-contained HTML report of an evaluation, for readers without programming knowledge."""

from __future__ import annotations

from densecal.report.monitor_page import write_monitor_report
from densecal.report.page import render_report, write_report
from densecal.report.verdict import Verdict, judge

__all__ = ["Verdict", "judge", "render_report", "write_monitor_report", "write_report"]
