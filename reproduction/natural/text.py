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

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from reproduction.measuring.measurements import CLEAN, OOD, VAL, Measurements
from reproduction.natural.heads import (
    Floats,
    Labels,
    Vectors,
    by_domain,
    domain_names,
    measure_vectors,
    split_rows,
    train_network,
)

Tokens = list[NDArray[np.int64]]
Texts = tuple[Tokens, Labels]
DOMAINS = ("books", "dvd", "electronics", "kitchen", "imdb")
REVIEW = re.compile(r"<review_text>(.*?)</review_text>", re.DOTALL)
MAX_TOKENS = 400


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
        """Return the token ids of each text."""
        encoded = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [np.array(one.ids or [0], np.int64) for one in encoded]

    def vectors(self, texts: Tokens) -> Floats:
        """Return the mean vector of each text."""
        return np.stack([self.table[ids].astype(np.float32).mean(axis=0) for ids in texts])


def perturbed_texts(data: Texts, seed: int) -> dict[str, Texts]:
    """Return copies with dropped tokens, with tokens of other texts, and cut off, each text by a random share.

    A copy is divided into domains by that share.
    """
    texts, labels = data
    draw = np.random.default_rng(seed)
    pool = np.concatenate(texts)
    domains = {}
    for kind in ("dropped", "replaced", "cut"):
        strengths = draw.uniform(size=len(texts))
        changed = []
        for ids, share in zip(texts, 0.9 * strengths, strict=True):
            chosen = draw.uniform(size=len(ids)) < share
            if kind == "replaced":
                changed.append(np.where(chosen, draw.choice(pool, len(ids)), ids))
            else:
                kept = ids[~chosen] if kind == "dropped" else ids[: round((1 - share) * len(ids))]
                changed.append(kept if len(kept) else ids[:1])
        for name, rows in by_domain(domain_names(kind, strengths)).items():
            domains[name] = ([changed[row] for row in rows], labels[rows])
    return domains


def _measure(
    name: str,
    embedding: Embedding,
    n_classes: int,
    seed: int,
    train: Texts,
    sets: dict[str, Texts],
) -> Measurements:
    learned = Vectors(embedding.vectors(train[0]), train[1])
    every = {**sets, **perturbed_texts(sets[VAL], seed)}
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
    """Train on 60 % of one domain's reviews, fit on 20 %, and judge on the rest and on the other domains."""
    embedding = Embedding()
    domains = {}
    for name in DOMAINS:
        reviews, positive = read_reviews(data / name)
        domains[name] = (embedding.tokens(reviews), positive)
    for source, (texts, labels) in domains.items():
        parts = split_rows(len(labels), seed, 0.2, 0.2)
        val, test, train = (([texts[row] for row in rows], labels[rows]) for rows in parts)
        targets = {name: data for name, data in domains.items() if name != source}
        sets = {VAL: val, CLEAN: test, **targets}
        yield _measure(f"sentiment-{source}-{seed}", embedding, 2, seed, train, sets)


def intents(data: Path, seed: int) -> Iterator[Measurements]:
    """Train on CLINC150's 15,000 questions and judge on its test and its out-of-scope questions."""
    embedding = Embedding()
    parts = json.loads((data / "data_full.json").read_text())
    classes = {name: label for label, name in enumerate(sorted({intent for _, intent in parts["train"]}))}

    def read(part: str) -> Texts:
        labels = [classes.get(intent, 0) for _, intent in parts[part]]
        return embedding.tokens([text for text, _ in parts[part]]), np.array(labels)

    sets = {VAL: read("val"), CLEAN: read("test"), f"{OOD}out-of-scope": read("oos_test")}
    yield _measure(f"intents-clinc150-{seed}", embedding, len(classes), seed, read("train"), sets)
