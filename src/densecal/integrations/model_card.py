"""The section on calibration in the model card of a repository on the Hugging Face Hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from densecal import __version__
from densecal.calibrators import UNCALIBRATED
from densecal.io.files import atomic_write

if TYPE_CHECKING:
    from densecal.evaluation import EvaluationTable
    from densecal.torch.model import CalibratedModel

START, END = "<!-- densecal: start -->", "<!-- densecal: end -->"
HEADER = "---\nlibrary_name: transformers\ntags:\n- densecal\n- calibration\n---\n\n# {name}, calibrated\n\n"
USAGE = """```python
from densecal.torch import CalibratedModel

model = CalibratedModel.from_pretrained("path or repository")
```

`AutoModelFor...Classification.from_pretrained` and `pipeline` of transformers give the calibrated model, too, with
`trust_remote_code=True` or after `import densecal.integrations.huggingface`. All need `pip install "densecal[hf]"`."""


def write_card(path: Path, model: CalibratedModel, evaluation: EvaluationTable | None) -> None:
    """Write a model card, or only its section on calibration where there is a card already."""
    section = f"{START}\n{_section(model, evaluation)}\n{END}"
    if path.exists():
        text = path.read_text(encoding="utf-8")
        found = re.search(f"{re.escape(START)}.*?{re.escape(END)}", text, re.S)
        text = text[: found.start()] + section + text[found.end() :] if found else f"{text.rstrip()}\n\n{section}\n"
    else:
        text = HEADER.format(name=type(model).__name__) + section + "\n"
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _section(model: CalibratedModel, evaluation: EvaluationTable | None) -> str:
    settings = "\n".join(f"- {name}: {choice}" for name, choice in model.choices.items())
    about = f"The confidences are calibrated with densecal {__version__}: {model.calibrator.full_name}."
    figures = "The calibrated model was not evaluated." if evaluation is None else _figures(evaluation)
    return "\n\n".join(part for part in ("## Calibration", about, settings, figures, USAGE) if part)


def _figures(evaluation: EvaluationTable) -> str:
    """Return accuracy, ECE and negative log-likelihood of each test set, without and with calibration."""
    method = next(name for name in evaluation.methods if name != UNCALIBRATED)
    rows = ["| test set | samples | accuracy | ECE before | ECE | NLL before | NLL |", "|---|" + "---:|" * 6]
    for place, condition in enumerate(evaluation.conditions):

        def value(name: str, metric: str, place: int = place) -> float:
            return float(evaluation.values[name, metric][place])

        rows.append(
            f"| {condition} | {condition.n_samples:,} | {value(method, 'accuracy'):.1%} "
            f"| {value(UNCALIBRATED, 'ece'):.1%} | {value(method, 'ece'):.1%} "
            f"| {value(UNCALIBRATED, 'nll'):.3f} | {value(method, 'nll'):.3f} |"
        )
    return "\n".join(rows)
