"""Tables of outputs: CSV and Parquet files with one row per sample."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from densecal.errors import ArtefactError, require, warn_user
from densecal.io.atomic_files import listed, open_file, quoted

if TYPE_CHECKING:
    import pandas as pd

    from densecal.io.output_files import FileLayout

DELIMITERS = {".csv": ",", ".tsv": "\t"}
TABLE_SUFFIXES = (*DELIMITERS, ".parquet")
LABEL_NAMES = ("label", "labels")
MOST_HEAD_BYTES = 1 << 20
_WHAT = "(?:logits?|scores?|p|probs?|proba|probability|probabilities)"
_NUMBERED = re.compile(rf"{_WHAT}?[-_ .]?(\d{{1,9}})")
_NAMED = re.compile(rf"{_WHAT}[-_ .](.+)")
_ID = re.compile(r".*(?:id|key|index|sample)", re.IGNORECASE)
_FEATURE = re.compile(r"(features/.+)/(\d{1,9})")


def read_table(path: Path, file: BinaryIO, layout: FileLayout) -> dict[str, Any]:
    """Return the arrays of a table: logits, and labels, ids, classes and features/LAYER if present."""
    table = _read_frame(path, file, layout)
    names = [str(column) for column in table.columns]
    for name in (layout.labels, layout.id):
        if name is not None and name not in names:
            raise ArtefactError(
                f"{path} has no column {name!r}. Its columns are {quoted(names)}.{_missing_head(names)}"
            )
    labels = [name for name in names if name == layout.labels or (not layout.labels and name in LABEL_NAMES)]
    features = _feature_columns(path, names)
    taken = {*labels, layout.id, *(column for columns in features.values() for column in columns)}
    others = [name for name in names if name not in taken]
    texts = _texts(table[labels[0]]) if labels else set[str]()
    known = layout.classes or layout.score_classes
    chosen = _find_scores(others, known, texts) if layout.scores is None else _given_scores(path, others, layout)
    if not chosen or len(labels) > 1:
        unknown = [name for name in others if not (_NUMBERED.fullmatch(name) or _NAMED.fullmatch(name))]
        raise ArtefactError(
            f"{path} has the columns {quoted(names)}. Expected logit0, logit1, ... in the order of the classes and, "
            "optionally, label and features/LAYER/0, ..., each once, and no other columns"
            + (f", but there is {quoted(unknown)}" if unknown else "")
            + ". Otherwise say which: "
            + _suggest_options(table, others, labels, texts, layout)
            + _missing_classes(others, known or sorted(texts))
            + _missing_head(names)
        )
    columns, classes = _with_classes(chosen, known, texts)
    arrays: dict[str, Any] = {"logits": _numbers(path, table, columns)}
    if labels:
        arrays["labels"] = table[labels[0]].to_numpy()
    if layout.id is not None:
        arrays["ids"] = table[layout.id].to_numpy()
    if classes:
        arrays["classes"] = np.array(classes)
    return arrays | {layer: _numbers(path, table, columns) for layer, columns in features.items()}


def read_late_labels(path: Path, layout: FileLayout) -> tuple[list[str], Any]:
    """Return the ids and the labels of a table that has no scores, without the rows that have no label yet."""
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise ArtefactError(f"{path}: labels that arrive late are read from {', '.join(TABLE_SUFFIXES)} files.")
    with open_file(path) as file:
        table = _read_frame(path, file, layout)
    names = [str(column) for column in table.columns]
    labels = [name for name in names if name == layout.labels or (not layout.labels and name in LABEL_NAMES)]
    if layout.id not in names or len(labels) != 1:
        raise ArtefactError(
            f"{path} has the columns {quoted(names)}. Expected {layout.id!r} (--id) and {layout.labels or 'label'!r} "
            "(--labels)."
        )
    table = table[~is_missing(table[labels[0]])]
    return sample_names(path, table[layout.id].to_numpy()), table[labels[0]].to_numpy()


def sample_names(path: Path, ids: Any) -> list[str]:
    """Return the ids of samples as text."""
    if np.ndim(ids) != 1:
        raise ArtefactError(f"{path}: the ids must have one value per sample, got an array of shape {np.shape(ids)}.")
    return as_texts(path, ids, "id")


def warn_if_repeated(path: Path, ids: Any) -> None:
    """Warn about samples with the id of an earlier sample."""
    import pandas as pd

    if n_repeated := int(pd.Series(ids).duplicated().sum()):
        found = f"{n_repeated:,} of {len(ids):,} samples have the id of an earlier one"
        warn_user(f"{path}: {found}. A sample that occurs twice counts twice.")


def as_texts(path: Path, column: Any, what: str) -> list[str]:
    """Return ids or labels as text, the same for whole numbers in integers and in floats; raise if one is missing."""
    missing = np.flatnonzero(is_missing(column))
    if missing.size:
        raise ArtefactError(
            f"{path}: the {what} of row {missing[0]} is missing (rows count from 0). Add it, or remove such rows "
            f"({len(missing)})."
        )
    texts = (one.decode() if isinstance(one, bytes) else one for one in column.tolist())
    return [str(int(one)) if isinstance(one, float) and one.is_integer() else str(one) for one in texts]


def is_missing(column: Any) -> Any:
    """Return which values of a column are missing: NaN, None or the NA of pandas."""
    import pandas as pd

    return pd.isna(column)


def _read_frame(path: Path, file: BinaryIO, layout: FileLayout) -> pd.DataFrame:
    import pandas as pd

    suffix = path.suffix.lower()
    if suffix == ".parquet":
        require("pyarrow", "parquet", f"{path}: reading Parquet")
    delimiter = delimiter_of(path, layout.delimiter)
    # An id such as 007 keeps its zeros, and a class may be named NA.
    texts: dict[str, Any] = {} if layout.id is None else {layout.id: str}
    try:
        if suffix == ".parquet":
            return _with_index(pd.read_parquet(file), layout)
        reading: dict[str, Any] = {"sep": delimiter, "decimal": layout.decimal, "dtype": texts}
        table: pd.DataFrame = pd.read_csv(file, keep_default_na=False, na_values=["", "nan", "NaN"], **reading)
    except UnicodeDecodeError:
        raise ArtefactError(f"{path} cannot be read as a table: it is not UTF-8 text. Save it as UTF-8.") from None
    except (ValueError, OSError, OverflowError) as error:
        raise ArtefactError(_unreadable(path, file, delimiter, str(error))) from None
    others = [one for one in (";", "\t", "|", ",") if one in str(table.columns[0])]
    if len(table.columns) == 1 and others:
        raise ArtefactError(
            f"{path} has one column, {table.columns[0]!r}. Say what separates it: --delimiter {others[0]!r}."
        )
    return table


def _with_index(table: pd.DataFrame, layout: FileLayout) -> pd.DataFrame:
    """Return the table with those levels of its index as columns that the user named."""
    named = {layout.id, layout.labels, *(layout.scores or "").split(",")}
    levels = [name for name in table.index.names if name is not None and name in named - {*table.columns}]
    return table.reset_index(levels) if levels else table


def _unreadable(path: Path, file: BinaryIO, delimiter: str, error: str) -> str:
    """Return the reason why a file is not a table: it is empty, or another character separates its columns."""
    file.seek(0)
    head = file.readline(MOST_HEAD_BYTES).decode(errors="replace")
    if path.suffix.lower() in DELIMITERS and not head.strip() and not file.read(1):
        return f"{path} is empty."
    text = f"{path} cannot be read as a table: {' '.join(error.split())}"
    likely = max((";", "\t", "|", ","), key=head.count)
    if path.suffix.lower() not in DELIMITERS or head.count(likely) <= head.count(delimiter):
        return text
    return f"{text}. If another character separates the columns, pass it: --delimiter {likely!r}."


def delimiter_of(path: Path, given: str | None) -> str:
    """Return the character that separates the columns of a text file."""
    return {"tab": "\t", "\\t": "\t"}.get(given or "", given) or DELIMITERS.get(path.suffix.lower(), ",")


def _feature_columns(path: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns features/LAYER/0, features/LAYER/1, ... of each layer, in order."""
    layers: dict[str, dict[int, str]] = {}
    for name in names:
        if match := _FEATURE.fullmatch(name):
            layers.setdefault(match[1], {})[int(match[2])] = name
    for layer, columns in layers.items():
        if sorted(columns) != list(range(len(columns))):
            raise ArtefactError(f"{path} must have the columns {layer}/0 ... {layer}/{len(columns) - 1}, each once.")
    return {layer: [columns[place] for place in sorted(columns)] for layer, columns in layers.items()}


def _given_scores(path: Path, others: Sequence[str], layout: FileLayout) -> list[str]:
    """Return the columns that the user named, or those of a pattern by their numbers, so that p10 follows p9."""
    found: dict[str, None] = {}
    for wanted in (layout.scores or "").split(","):
        matching = [name for name in others if fnmatchcase(name, wanted)]
        columns = [wanted] if wanted in others else sorted(matching, key=_last_number)
        if not columns:
            raise ArtefactError(f"{path} has no column {wanted!r} for --scores, but {listed(others)}.")
        found |= dict.fromkeys(columns)
    return list(found)


def _suggest_options(
    table: pd.DataFrame, others: Sequence[str], labels: Sequence[str], texts: set[str], layout: FileLayout
) -> str:
    """Return the options that say what the columns are, with the names of columns that can be told."""
    scores = _likely_scores(others, texts)
    ids = [name for name in others if _ID.fullmatch(name) and table[name].dtype.kind != "f"]
    ids = [name for name in ids if table[name].astype(str).is_unique]
    missing = {} if layout.scores else {"--scores": scores}
    if len(labels) != 1:
        missing["--labels"] = labels[0] if labels else ""
    if layout.id is None and (ids or not scores):
        missing["--id"] = ids[0] if ids else ""
    told = " ".join(f"{option} {shlex.quote(name)}" for option, name in missing.items() if name)
    untold = ", ".join(option for option, name in missing.items() if not name)
    return f"{'; '.join(filter(None, (told, untold)))}."


def _likely_scores(others: Sequence[str], texts: set[str]) -> str:
    """Return the columns of the classes among the labels, or a pattern for those of one prefix; empty if unclear."""
    if 1 < len(texts) < len(others) and texts < set(others):
        return ",".join(name for name in others if name in texts)
    scores = [name for name in others if _NUMBERED.fullmatch(name) or _NAMED.fullmatch(name)]
    prefixes = {match[0] for name in scores if (match := re.match(r"[A-Za-z]+[-_ .]?", name))}
    return f"{prefixes.pop()}*" if len(scores) > 1 and len(prefixes) == 1 else ""


def _missing_classes(others: Sequence[str], known: Sequence[str]) -> str:
    """Return which of the known classes have no column, if the others have one."""
    named = {*others, *map(_without_prefix, others)}
    missing = [name for name in known if name not in named]
    return f" No column is named for the classes {quoted(missing)}." if 0 < len(missing) < len(known) else ""


def _missing_head(names: Sequence[str]) -> str:
    """Return what a table without names of columns lacks."""
    is_number = any(re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", name) for name in names)
    return " Its first row must contain the names of the columns." if is_number else ""


def _last_number(name: str) -> int:
    match = re.search(r"(\d{1,9})$", name)
    return int(match[1]) if match else 0


def _find_scores(others: Sequence[str], classes: Sequence[str], texts: set[str]) -> list[str]:
    """Return the columns logit0, logit1, ..., or logit_CLASS, or those of the classes' names; none if it is unclear."""
    numbers = {int(match[1]): name for name in others if (match := _NUMBERED.fullmatch(name))}
    if 1 < len(numbers) == len(others) and sorted(numbers) == list(range(len(numbers))):
        return [numbers[place] for place in range(len(numbers))]
    wanted = set(classes) or texts
    for names in (others, [_without_prefix(name) for name in others]):
        # The classes of a calibrator are known. Otherwise the labels must contain all classes.
        if wanted and (wanted <= set(names) if classes else wanted == set(names)):
            return [column for column, name in zip(others, names, strict=True) if name in wanted]
    return list(others) if len(others) > 1 and all(_NAMED.fullmatch(name) for name in others) else []


def _with_classes(columns: list[str], classes: Sequence[str], texts: set[str]) -> tuple[list[str], Sequence[str]]:
    """Return the columns in the order of the classes, and the names of the classes, if there are any."""
    short = [_without_prefix(name) for name in columns]
    for names in (columns, short):
        if classes and set(names) == set(classes):
            return [columns[names.index(name)] for name in classes], classes
        if not classes and texts and texts <= set(names):
            return columns, names
    unnamed = len(columns) == 1 or all(_NUMBERED.fullmatch(name) for name in columns)
    return columns, [] if unnamed else short


def _without_prefix(name: str) -> str:
    match = _NAMED.fullmatch(name)
    return match[1] if match else name


def _texts(column: pd.Series[Any]) -> set[str]:
    """Return the different values of a column of text, none for numbers."""
    return set() if column.dtype.kind in "biuf" else {str(one) for one in column.dropna().unique()}


def _numbers(path: Path, table: pd.DataFrame, columns: list[str]) -> Any:
    try:
        if len(columns) == 1 and len(table) and isinstance(table[columns[0]].iloc[0], (list, np.ndarray)):
            return np.stack(table[columns[0]].to_list()).astype(np.float64)
        return table[columns].to_numpy(np.float64)
    except (ValueError, TypeError):
        raise ArtefactError(f"{path}: {_first_text(table[columns])}") from None


def _first_text(table: pd.DataFrame) -> str:
    """Return the place of the first value that is no number; of a missing one only if there is no other."""
    import pandas as pd

    is_text = table.astype(str).apply(pd.to_numeric, errors="coerce").isna()
    is_given = is_text & table.notna()
    row, place = (int(one[0]) for one in (is_given if is_given.any(axis=None) else is_text).to_numpy().nonzero())
    value = str(table.iat[row, place])
    hint = " Decimal commas need --decimal ','." if re.fullmatch(r"-?\d*,\d+", value) else ""
    found = f"got {value[:40]!r} in row {row} (rows count from 0)"
    return f"the column {table.columns[place]!r} must contain only numbers, {found}.{hint}"
