"""Run all benchmarks and write their results to RESULTS.md.

    python benchmarks/run.py            # run the benchmarks, then assemble the sections
    python benchmarks/run.py --assemble # only assemble the sections

The other results are measured separately, with the command given in their section, and stored in results/.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench import RESULTS

HERE = Path(__file__).parent
SCRIPTS = {
    "temperature_fits": "temperature_fits.py",
    "calibrators": "calibrators.py",
    "bank": "bank.py",
    "metrics": "metrics.py",
    "corruptions_speed_cpu": "corruptions.py",
    "extraction_cpu": "extraction_cpu.py",
}
"""The scripts that ``make bench`` runs, by the section that each writes."""
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
    found = {name: path.read_text().strip() for name in SECTIONS if (path := RESULTS / f"{name}.md").exists()}
    *titles, last = (f"*{found[name].splitlines()[0].lstrip('# ')}*" for name in SCRIPTS if name in found)
    head = (
        "# Benchmarks\n\nRatios are measured within one run, because absolute times vary on a shared machine. "
        f"`make bench` measures {', '.join(titles)} and {last} again on two cores and writes this "
        "page. The other sections are measured separately."
    )
    (HERE / "RESULTS.md").write_text("\n\n".join([head, *found.values()]) + "\n")
    print(f"wrote {HERE / 'RESULTS.md'} from {len(found)} sections")


def main() -> None:
    if "--assemble" not in sys.argv:
        for script in SCRIPTS.values():
            print(f"== {script}", flush=True)
            subprocess.run([sys.executable, str(HERE / script)], check=True)
    assemble()


if __name__ == "__main__":
    main()
