"""Count the source files of densecal whose functions run during a fit, in Python and on the command line.

python benchmarks/trace_files.py
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import densecal
from densecal import FeatureBank, make_calibrator
from densecal.cli import main
from densecal.demo import DATA, load_demo

PACKAGE = Path(densecal.__file__).parent


def files_run_by(work: Callable[[], object]) -> list[str]:
    """Return the files of densecal in which ``work`` calls a function."""
    called: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            called.add(frame.f_code.co_filename)

    work()  # Import all modules first, so that only the calls of the work itself are recorded.
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return sorted(str(Path(file).relative_to(PACKAGE)) for file in called if Path(file).is_relative_to(PACKAGE))


def trace_fits() -> None:
    train, val = load_demo("train"), load_demo("val")
    bank = FeatureBank(train.features, k=10)

    def fit_in_python() -> None:
        make_calibrator("dac+ets", bank=bank).fit(val.logits, val.labels, features=val.features)

    def fit_on_the_command_line() -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            files = ["--train", str(DATA / "train.safetensors"), "--val", str(DATA / "val.safetensors")]
            main(["fit", *files, "-o", f"{folder}/calibrator.densecal"])

    for name, work in (
        ('make_calibrator("dac+ets").fit', fit_in_python),
        ("densecal fit --train --val -o", fit_on_the_command_line),
    ):
        files = files_run_by(work)
        print(f"{name}: {len(files)} files\n  " + "\n  ".join(files))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    trace_fits()
