"""The severity in the name of a test set: fog-3, rain-severity-3, sev3, or one of a series."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from densecal.shift.corruptions.constants import CORRUPTIONS

UNNAMED_SHIFT = "shift"
"""The name of a test set whose file name holds only a severity."""
LARGEST_SEVERITY_IN_NAMES = 5

_EXPLICIT = re.compile(r"(?:(.+)[-_ ])?sev(?:erity)?[-_ ]?(\d+)", re.IGNORECASE)
_CORRUPTION = re.compile(rf"(.+)[-_ ]([0-{LARGEST_SEVERITY_IN_NAMES}])")
_SERIES = re.compile(r"(.+)-(\d+)")
_ENUMERATED = re.compile(
    r"(?:.*[-_ ])?(?:fold|split|part|batch|shard|set|run|seed|trial|epoch|version|v|model|group|user|customer"
    r"|site|store|hospital|clinic|camera|sensor|device|region|hour|day|week|weekday|month|quarter|q|season|year|\d{4})s?",
    re.IGNORECASE,
)
"""Stems after which a number is an index (folds, places) or a time, not a severity."""


def severities_from_names(names: Sequence[str]) -> list[tuple[str, int]]:
    """Return the kind of shift and the severity of each name, by the rule of `read_conditions`."""
    stems = series_stems(names)
    return [(name, severity or 0) for name, severity in (split_severity(name, stems) for name in names)]


def split_severity(name: str, stems: set[str]) -> tuple[str, int | None]:
    """Split a name into the kind of shift and the severity, or None."""
    explicit = _EXPLICIT.fullmatch(name)
    if explicit:
        return explicit[1] or UNNAMED_SHIFT, int(explicit[2])
    corruption = _CORRUPTION.fullmatch(name)
    if corruption and re.sub(r"[- ]", "_", corruption[1].lower()) in CORRUPTIONS:
        return corruption[1], int(corruption[2])
    series = _SERIES.fullmatch(name)
    if series and series[1] in stems:
        return series[1], int(series[2])
    return name, None


def series_stems(names: Iterable[str]) -> set[str]:
    """Return the stems with several numbers, all of which can be severities, such as test for test-1 and test-3."""
    numbers: dict[str, set[str]] = defaultdict(set)
    for name in names:
        match = _SERIES.fullmatch(name)
        if match and not _ENUMERATED.fullmatch(match[1]):
            numbers[match[1]].add(match[2])
    severities = {str(severity) for severity in range(LARGEST_SEVERITY_IN_NAMES + 1)}
    return {stem for stem, found in numbers.items() if len(found) > 1 and found <= severities}
