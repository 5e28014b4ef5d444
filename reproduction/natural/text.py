"""Text: reviews of five kinds of products (binary sentiment), and intents with out-of-scope questions (CLINC150).

A text is the mean of the vectors of its tokens, from the package ``wordllama``.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from densecal.shift import token_domains
from reproduction.measuring.measurements import CLEAN, OOD, PERTURBED, VAL, Measurements
from reproduction.natural.vector_network import (
    Floats,
    Labels,
    Vectors,
    measure_vectors,
    split_rows,
    train_network,
)

Tokens = NDArray[np.integer[Any]]
Texts = tuple[Tokens, Labels]
DOMAINS = ("books", "dvd", "electronics", "kitchen", "imdb")
REVIEW = re.compile(r"<review_text>(.*?)</review_text>", re.DOTALL)
MAX_TOKENS, PAD = 400, -1


class Embedding:
    """The tokens of texts, and the mean of their vectors."""

    def __init__(self) -> None:
        found = find_spec("wordllama")
        if found is None or found.submodule_search_locations is None:
            raise ModuleNotFoundError("the text studies need the vectors in the package wordllama: install it")
        folder = Path(found.submodule_search_locations[0])
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS)
        (self.table,) = load_file(folder / "weights" / "l2_supercat_256.safetensors").values()

    def tokens(self, texts: Sequence[str]) -> Tokens:
        """Return the token ids of each text, padded on the right."""
        encoded = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        tokens = np.full((len(texts), MAX_TOKENS), PAD)
        for row, one in zip(tokens, encoded, strict=True):
            row[: len(one.ids)] = one.ids
        return tokens

    def vectors(self, texts: Tokens) -> Floats:
        """Return the mean vector of each text; zero for an empty one."""
        return np.stack(
            [self.table[row[row != PAD]].astype(np.float32).sum(axis=0) / max(1, (row != PAD).sum()) for row in texts]
        ).astype(np.float32)


def _measure(
    name: str,
    embedding: Embedding,
    n_classes: int,
    seed: int,
    train: Texts,
    sets: dict[str, Texts],
) -> Measurements:
    learned = Vectors(embedding.vectors(train[0]), train[1])
    tokens, labels = sets[VAL]
    domains = {
        f"{PERTURBED}{name}": (copy, labels) for name, copy in token_domains(tokens, pad_id=PAD, seed=seed).items()
    }
    every = {**sets, **domains}
    vectors = {key: Vectors(embedding.vectors(texts), labels) for key, (texts, labels) in every.items()}
    return measure_vectors(name, train_network(learned, n_classes, seed), learned, vectors)


def read_reviews(folder: Path) -> tuple[list[str], Labels]:
    """Return the reviews of a domain and whether each is positive."""
    if (file := folder / f"{folder.name}.csv").exists():
        with file.open(newline="", encoding="utf-8", errors="replace") as opened:
            rows = list(csv.DictReader(opened))
        return [row["reviews"] for row in rows], np.array([int(float(row["labels"])) for row in rows])
    texts = {
        label: REVIEW.findall((folder / f"{name}.review").read_text(encoding="utf-8", errors="replace"))
        for label, name in enumerate(("negative", "positive"))
    }
    return [*texts[0], *texts[1]], np.repeat([0, 1], [len(texts[0]), len(texts[1])])


def sentiment(data: Path, seed: int) -> Iterator[Measurements]:
    """Train on 60 % of one domain's reviews, fit on 20 %, and evaluate on the rest and on the other domains."""
    embedding = Embedding()
    domains = {}
    for name in DOMAINS:
        reviews, positive = read_reviews(data / name)
        domains[name] = (embedding.tokens(reviews), positive)
    for source, (texts, labels) in domains.items():
        parts = split_rows(len(labels), seed, 0.2, 0.2)
        val, test, train = ((texts[rows], labels[rows]) for rows in parts)
        targets = {name: data for name, data in domains.items() if name != source}
        sets = {VAL: val, CLEAN: test, **targets}
        yield _measure(f"sentiment-{source}-{seed}", embedding, 2, seed, train, sets)


def intents(data: Path, seed: int) -> Iterator[Measurements]:
    """Train on the 15,000 questions of CLINC150 and evaluate on its test and out-of-scope questions."""
    embedding = Embedding()
    parts = json.loads((data / "data_full.json").read_text())
    classes = {name: label for label, name in enumerate(sorted({intent for _, intent in parts["train"]}))}

    def read(part: str) -> Texts:
        labels = [classes.get(intent, 0) for _, intent in parts[part]]
        return embedding.tokens([text for text, _ in parts[part]]), np.array(labels)

    sets = {VAL: read("val"), CLEAN: read("test"), f"{OOD}out-of-scope": read("oos_test")}
    yield _measure(f"intents-clinc150-{seed}", embedding, len(classes), seed, read("train"), sets)
