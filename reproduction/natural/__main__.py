"""``python -m reproduction.natural``: natural shifts, measured and evaluated."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help=__doc__, no_args_is_help=True)
STUDIES = {
    "pacs": "images",
    "office": "images",
    "digits": "images",
    "photographs": "photographs",
    "sentiment": "text",
    "intents": "text",
    "employment": "tables",
    "electricity": "tables",
}
"""The module of each study, imported when it runs: each needs other packages."""
Study = Annotated[str, typer.Argument(help=", ".join(STUDIES))]
Measured = Annotated[Path, typer.Option(help="Folder of the measurements.")]
Results = Annotated[Path, typer.Option(help="Folder of the committed results.")]
MEASURED, RESULTS = Path("runs/natural"), Path("results/natural")


@app.command()
def measure(
    study: Study,
    data: Annotated[Path, typer.Option(help="Folder of the study's data; see the README.")],
    seeds: Annotated[int, typer.Option(help="Number of trainings.")] = 3,
    measured: Measured = MEASURED,
) -> None:
    """Train a network on each source, and store its logits and distances on all sets."""
    if study not in STUDIES:
        raise typer.BadParameter(f"study must be one of {', '.join(STUDIES)}; got {study!r}")
    run = getattr(import_module(f"reproduction.natural.{STUDIES[study]}"), study)
    for seed in range(seeds):
        for one in run(data, seed):
            one.save(measured / one.classifier)
            print(one.classifier, flush=True)


@app.command()
def judge(study: Study, measured: Measured = MEASURED, results: Results = RESULTS) -> None:
    """Fit and evaluate every method on the measurements of a study."""
    from reproduction.natural.judge import judge_folder

    results.mkdir(parents=True, exist_ok=True)
    table, outside, estimates = judge_folder(measured, study)
    for name, found in ((study, table), (f"{study}-ood", outside), (f"{study}-estimates", estimates)):
        if len(found):
            found.round(5).to_csv(results / f"{name}.csv", index=False)
    print(table.pivot_table(index=["source", "target"], columns="method", values="ece").round(3).to_string())


@app.command()
def page(results: Results = RESULTS) -> None:
    """Write README.md and the figure of the results from their tables."""
    import pandas as pd
    from matplotlib import rc_context

    from reproduction.natural.estimates import section
    from reproduction.natural.figure import picture
    from reproduction.natural.page import by_pair, summary

    outside, estimates = (
        [pd.read_csv(path) for path in sorted(results.glob(f"*-{what}.csv"))] for what in ("ood", "estimates")
    )
    table = pd.concat(pd.read_csv(path) for path in sorted(results.glob("*.csv")) if path.stem in STUDIES)
    (results / "README.md").write_text(summary(table, outside) + section(pd.concat(estimates)))
    with rc_context({"svg.hashsalt": "pairs"}):  # The same figure gives the same file.
        picture(by_pair(table)).savefig(results / "pairs.svg", metadata={"Date": None})


@app.command()
def site(
    results: Annotated[Path, typer.Option(help="Folder of all committed results.")] = Path("results"),
    pages: Annotated[Path, typer.Option(help="Folder of the site's pages.")] = Path("docs/pages"),
) -> None:
    """Write the site's page on real shift and its figure from the results of all studies."""
    from reproduction.natural.site import write

    write(results, pages)


if __name__ == "__main__":
    app()
