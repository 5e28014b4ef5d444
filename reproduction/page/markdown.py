"""Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown(header: Sequence[str], lines: Iterable[Sequence[object]], n_text: int = 1) -> str:
    """Return a Markdown table; the first ``n_text`` columns are text, the others numbers, aligned to the right."""
    rule = "|---" * n_text + "|---:" * (len(header) - n_text) + "|"
    head, *body = (f"| {' | '.join(map(str, cells))} |" for cells in (header, *lines))
    return "\n".join([head, rule, *body]) + "\n"
