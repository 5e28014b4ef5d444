"""Run all benchmarks and write their results to RESULTS.md.

    python benchmarks/run.py            # run the benchmarks, then assemble the sections
    python benchmarks/run.py --assemble # only assemble the sections

The other results are measured separately, with the command given in their section, and stored in results/.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = ("temperature_fits.py", "calibrators.py", "bank.py", "metrics.py", "corruptions.py", "extraction_cpu.py")
REPEATED = (
    "*Temperature fits*",
    "*Fits of the other methods*",
    "*The k-th neighbour search*",
    "*Metrics*",
    "*Speed of the corruptions (cpu)*",
    "*Extraction on the CPU*",
)
"""Titles of the sections that SCRIPTS write."""
SECTIONS = (
    "temperature_fits",
    "calibrators",
    "bank",
    "metrics",
    "corruptions_speed_cpu",
    "h200_corruptions",
    "h200_model",
    "cpu_model",
    "extraction_cpu",
    "calibrate_cpu",
    "h200_training",
    "corruption_accuracy",
    "tables",
    "streams",
)


def assemble() -> None:
    """Write the available sections to one page."""
    found = [path for name in SECTIONS if (path := HERE / "results" / f"{name}.md").exists()]
    head = (
        "# Benchmarks\n\nRatios are measured within one run, because absolute times vary on a shared machine. "
        f"`make bench` measures {', '.join(REPEATED[:-1])} and {REPEATED[-1]} again on two cores and writes this "
        "page. The other sections are measured separately.\n"
    )
    (HERE / "RESULTS.md").write_text("\n".join([head, *(path.read_text().strip() + "\n" for path in found)]))
    print(f"wrote {HERE / 'RESULTS.md'} from {len(found)} sections")


def main() -> None:
    if "--assemble" not in sys.argv:
        for script in SCRIPTS:
            print(f"== {script}", flush=True)
            subprocess.run([sys.executable, str(HERE / script)], check=True)
    assemble()


if __name__ == "__main__":
    main()
