"""Options, paths and data that several commands share, and the error raised for wrong usage."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial, wraps
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from densecal.errors import ArtefactError, warn_user

if TYPE_CHECKING:
    from densecal.io.output_files import FileLayout
    from densecal.outputs import Outputs, OutputShards

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DataRoot = Annotated[
    Path | None, typer.Option("--root", help="Folder of the data sets. The default is $DENSECAL_DATA or ./data.")
]
FILES = (
    "a .csv, .tsv, .parquet, .npz or .safetensors file, or a folder of .npy files, with arrays or columns named "
    "logits, labels and features/LAYER"
)
MAX_FIT_SAMPLES = 100_000
"""Enough for methods with few parameters. Methods with parameters per class gain from more: `results/fit_samples`."""
FEWEST_COMPARED = 20
"""Two files of fewer samples can have the same outputs by chance, if the classifier has few different ones."""
WHY_LABELS = "a calibrator is fitted on the true classes."
WHY_DIFFERENT = (
    "A calibrator needs validation data that the classifier was not trained on, and shifted data that differ from it."
)
LOCAL, RAY = "local", "ray"
_file_option = partial(typer.Option, rich_help_panel="File contents")
_engine_option = partial(typer.Option, rich_help_panel="Execution")


class UsageError(ValueError):
    """The options contradict each other or have invalid values. The exit code is that of wrong usage."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn the library's errors about values of options into usage errors."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


@contextmanager
def add_advice(advice: str, *, applies: bool) -> Iterator[None]:
    """Add advice to the error of a file that is not what the position of its name makes it, if the advice applies."""
    try:
        yield
    except (ArtefactError, UsageError) as error:
        if not applies:
            raise
        raise type(error)(f"{error} {advice}") from error


class SingleValueCommand(TyperCommand):
    """A command that rejects a repeated option unless the option collects several values.

    An option takes one value each time it is used, even if the shell expands a pattern to several files.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; a repeated option is an error, because its earlier values would be ignored."""
        if not ctx.resilient_parsing:
            _, extra, given = self.make_parser(ctx).parse_args(args=list(args))
            repeatable = dict.fromkeys(one.opts[0] for one in given if getattr(one, "multiple", False))
            if extra and repeatable:
                ctx.fail(
                    f"Unexpected extra arguments: {' '.join(extra)}. An option takes one value: repeat "
                    f"{' or '.join(repeatable)} before each file, or quote the pattern, such as 'day-*.npz'."
                )
            for option, count in Counter(given).items():
                takes_one = option.param_type_name == "option" and not option.multiple and not option.is_flag  # type: ignore[attr-defined]
                if takes_one and count > 1:
                    ctx.fail(f"{option.opts[0]} takes one value but is given {count} times. Pass it once.")
        return super().parse_args(ctx, args)


@dataclass(frozen=True)
class FileOptions:
    """The content of columns and arrays, for every command that reads files of outputs."""

    scores: Annotated[
        str | None,
        _file_option(
            help="The score columns in class order, or a pattern such as 'p_*'. A single column is the score of the "
            "second of two classes. The default is logit0, logit1, ... or logit_CLASS. For arrays: the array's name."
        ),
    ] = None
    labels: Annotated[
        str | None, _file_option(help="The column or array of true classes, as integers from 0 or as class names.")
    ] = None
    id: Annotated[
        str | None, _file_option("--id", help="The column or array of sample ids. `densecal apply` copies it.")
    ] = None
    classes: Annotated[
        str | None,
        _file_option(
            help="The class names in the order of the scores, such as cat,dog. The default is the names of the "
            "columns, which must be those stored in the calibrator, or else the order of the calibrator."
        ),
    ] = None
    probabilities: Annotated[
        bool, _file_option("--probabilities", help="The scores are probabilities or percentages.")
    ] = False
    delimiter: Annotated[str | None, _file_option(help="Column separator of a text file, such as ';' or tab.")] = None
    decimal: Annotated[str, _file_option(help="Decimal separator of a text file.")] = "."
    assume_logits: Annotated[
        bool, _file_option("--assume-logits", help="Accept logits that look like probabilities or percentages.")
    ] = False

    def layout(self) -> FileLayout:
        """Return the options for the file reader."""
        from densecal.io.output_files import FileLayout

        classes = tuple(name.strip() for name in (self.classes or "").split(",") if name.strip())
        return FileLayout(**{**vars(self), "score_classes": classes, "classes": ()})


@dataclass(frozen=True)
class EngineOptions:
    """Where a command runs, for commands that Ray can run."""

    engine: Annotated[
        str, _engine_option(help="local: in this process. ray: on Ray workers (requires densecal\\[ray]).")
    ] = LOCAL
    address: Annotated[
        str | None,
        _engine_option(
            help="With --engine ray: the cluster address, such as auto or ray://HOST:10001. The default is "
            "RAY_ADDRESS; if it is not set, Ray is started on this machine for the duration of the command."
        ),
    ] = None
    workers: Annotated[
        int | None,
        _engine_option(help="With --engine ray: number of workers. The default is as many as fit.", min=1),
    ] = None

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Yield the module for Ray, connected to a cluster, or None if the command runs in this process."""
        if self.engine not in (LOCAL, RAY):
            raise UsageError(f"--engine must be {LOCAL} or {RAY}, got {self.engine!r}.")
        if self.engine == LOCAL:
            if self.address is not None or self.workers is not None:
                raise UsageError("--address and --workers are for --engine ray.")
            yield None
            return
        import ray

        from densecal.integrations import ray as on_ray
        from densecal.integrations.ray.cluster import worker_errors

        with on_ray.cluster(self.address, workers=self.workers), worker_errors():
            # Ray Data shows its progress in a terminal, and errors, but no log.
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            ray.data.DataContext.get_current().enable_progress_bars = sys.stderr.isatty()
            yield on_ray


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a dataclass of options with the fields of the dataclass."""
    shared: dict[str, type] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            shared[name] = kind
            options += inspect.signature(kind, eval_str=True).parameters.values()
        else:
            options.append(parameter)
    options = [option.replace(kind=option.KEYWORD_ONLY) for option in options]

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)}) for name, kind in shared.items()
        }
        command(**made, **given)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in options}
    return run


def read_validation(
    paths: Sequence[Path], layout: FileLayout, max_samples: int | None = None
) -> tuple[Outputs, FileLayout]:
    """Return the labelled outputs of a data set, or a random sample of them, and the layout with its classes."""
    from densecal.io.atomic_files import listed, name_file_in_errors
    from densecal.io.output_files import require_labels
    from densecal.outputs import OutputShards

    shards, most = OutputShards(paths, layout), max_samples or MAX_FIT_SAMPLES
    require_labels(paths[0], shards.has_labels, WHY_LABELS)
    if len(shards.paths) > 1:
        _check_files_differ(shards)
    if len(shards) > most:
        advice = "" if max_samples is None else " To use more, pass --max-samples."
        used = f"using {most:,} of {len(shards):,} samples, drawn at random.{advice}"
        warn_user(f"{listed(paths, 2)}: {used}")
    outputs = shards.sample(most)
    with name_file_in_errors(paths[0]):
        outputs.checked_logits()
    return outputs, shards.layout


def _check_files_differ(shards: OutputShards) -> None:
    """Raise if two files of a data set have the same logits and labels, whatever their formats."""
    from densecal.arrays import data_hash
    from densecal.outputs import OutputShards

    seen: dict[str, Path] = {}
    for path in shards.paths:
        part = OutputShards([path], shards.layout)
        first = seen.setdefault(data_hash((batch.logits, batch.labels) for batch in part.batches()), path)
        if first != path and len(part) >= FEWEST_COMPARED:
            raise ValueError(f"{first} and {path} hold the same data. Pass one of them.")


def check_different(sets: Mapping[str, Outputs | OutputShards], why: str) -> None:
    """Raise if two of the named outputs have the same logits; ``why`` says what to pass instead."""
    import numpy as np

    from densecal.arrays import row_blocks
    from densecal.outputs.outputs import BATCH_SIZE

    for (name, one), (other, same) in combinations(sets.items(), 2):
        blocks = row_blocks(len(one), 1, BATCH_SIZE)
        # Other formats may round the numbers.
        pairs = ((np.asarray(one[rows].logits, "f4"), np.asarray(same[rows].logits, "f4")) for rows in blocks)
        if len(one) == len(same) and all(np.array_equal(*pair) for pair in pairs):
            raise ValueError(f"{name} and {other} hold the same data. {why}")


def expand(option: str, sources: Sequence[Path]) -> list[Path]:
    """Expand folders, and patterns that the shell did not expand, to the files of an option, in order.

    A missing shard is an error, and so is a file that occurs twice.
    """
    from densecal.outputs.shards import group_shards

    files = [file for source in sources for group in group_shards(source) for file in group]
    check_given_once(option, files)
    return files


def check_given_once(option: str, paths: Sequence[Path]) -> None:
    """Raise if two paths of an option are the same file."""
    seen: dict[str, Path] = {}
    for path in paths:
        first = seen.get(os.path.realpath(path))
        if first is not None:
            found = f"{path} twice" if first == path else f"one file twice, as {first} and as {path}"
            raise UsageError(f"{option} names {found}. Pass each file once: folders and patterns must not overlap.")
        seen[os.path.realpath(path)] = path


def check_outputs(outputs: Mapping[str, Path | None], inputs: Mapping[str, Sequence[Path]]) -> None:
    """Raise if a file cannot be written, is one to read, lies in a folder to read, or is written by two options.

    Both map an option, or another name of the role, to its paths.
    """
    from densecal.io.atomic_files import check_output_file

    read = [(role, path, os.path.realpath(path)) for role, paths in inputs.items() for path in paths]
    for option, output in outputs.items():
        if output is None:
            continue
        target = os.path.realpath(check_output_file(output))
        folders = {target, *map(str, Path(target).parents)}
        for role, path, source in read:
            if source == target or (source in folders and path.is_dir()):
                raise UsageError(f"{option} {output} would overwrite {role} {path}. Write to another file.")
        read.append((option, output, target))
