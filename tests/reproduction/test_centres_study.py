from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from reproduction.measuring.measurements import PERTURBED, VAL, MeasuredSet, Measurements  # noqa: E402
from reproduction.studies import centres  # noqa: E402
from reproduction.studies.centre_banks import LIBRARY, BankSpec, ImageSet, Measured, find_centres, measure  # noqa: E402

KINDS = (
    BankSpec(k=3),
    BankSpec(rows=20, k=2),
    BankSpec(centres=6),
    BankSpec(centres=6, init="k-means++"),
    BankSpec(centres=6, rows_per_centre=4),
    BankSpec(centres=6, init=LIBRARY),
)

BANKS = ("all rows, k=200", "500 centres, FeatureBank")
RESULTS = Path(centres.__file__).parents[2] / "results" / "centres"


class HereAndNow:
    """An executor that works in this process."""

    def submit(self, work, *arguments):
        from concurrent.futures import Future

        future = Future()
        future.set_result(work(*arguments))
        return future


def unit_rows(count: int, seed: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(count, 5, generator=torch.Generator().manual_seed(seed)))


@pytest.fixture
def measured() -> Measured:
    names = ["val", "perturbed-0", "clean", "fog-1", "fog-3"]
    labels = np.random.default_rng(0).integers(3, size=len(names) * 40)
    logits = np.random.default_rng(1).normal(size=(len(labels), 3)).astype(np.float32)
    logits[np.arange(len(labels)), labels] += 1.5
    parts = {name: slice(40 * place, 40 * place + 40) for place, name in enumerate(names)}
    return Measured({"pool": unit_rows(60, 0)}, {"pool": unit_rows(len(labels), 1)}, logits, labels, parts)


def test_the_study_has_a_row_for_every_bank_fit_and_condition(measured):
    futures = centres.study("c10-resnet20", measured, KINDS, HereAndNow())
    table = pd.concat([future.result() for future in futures])
    assert len(table) == 3 * (1 + 2 * len(KINDS))
    assert set(table["bank"]) == {"none", *map(str, KINDS)}
    short = centres.summarise(table)
    rows = table[(table["bank"] == str(KINDS[2])) & (table["fit"] == "shift")].set_index("severity")["ece"]
    found = short[(short["bank"] == str(KINDS[2])) & (short["fit"] == "shift")].iloc[0]
    assert found["ece, all"] == pytest.approx(100 * rows.mean(), abs=1e-3)
    assert found["ece, in-domain"] == pytest.approx(100 * rows[0], abs=1e-3)


def test_centres_depend_on_the_seed_alone():
    rows = unit_rows(200, 2)
    spec = BankSpec(centres=8, init="k-means++")
    assert torch.equal(find_centres(rows, spec), find_centres(rows, spec))
    assert not torch.equal(find_centres(rows, spec), find_centres(rows, BankSpec(centres=8, init="k-means++", seed=1)))


def test_a_network_is_measured_on_all_sets_in_one_pass():
    from reproduction.classifiers import find_classifier

    about = find_classifier("c10-resnet20")
    images = torch.randint(256, (12, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    sets = {"val": ImageSet(images[:5], np.arange(5)), "clean": ImageSet(images[5:], np.arange(7))}
    found = measure(about, about.build(), images, sets)
    assert found.parts == {"val": slice(0, 5), "clean": slice(5, 12)}
    assert found.logits.shape == (12, 10)
    assert list(found.features) == [*about.layers, "logits"]
    # The sets are the training images themselves, so each is its own nearest neighbour.
    assert found.distances(BankSpec(k=1)) == pytest.approx(0, abs=1e-3)


def test_the_committed_page_is_the_page_of_the_committed_tables(tmp_path):
    for name in (centres.TABLE, centres.CONFIRMED):
        (tmp_path / name).write_bytes((RESULTS / name).read_bytes())
    centres.main(out=tmp_path, page=True)
    assert (tmp_path / "README.md").read_text() == (RESULTS / "README.md").read_text()


def test_a_measured_network_confirms_the_choice_at_the_papers_k_and_at_the_nearest_centre(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=60)

    def measured_set(shift, with_labels=False):
        logits = rng.normal(size=(60, 3)).astype(np.float32)
        logits[np.arange(60), labels] += 3 - shift
        distances = np.sort(rng.uniform(0.2, 0.5, size=(60, 2, 2)) + shift / 4, axis=2)[:, :, ::-1]
        return MeasuredSet(logits, distances, labels if with_labels else None)

    perturbed = {f"{PERTURBED}{family}-0": measured_set(1.5) for family in set(centres.DEFAULT_MIX)}
    sets = {VAL: measured_set(0, True), "clean": measured_set(0, True), "fog-3": measured_set(2), **perturbed}
    Measurements("c100-resnet18", ("pool", "logits"), (200, None), sets).save(tmp_path)
    table = centres.confirm(tmp_path)
    kinds = [("none", "ts"), *((bank, fit) for bank in BANKS for fit in ("shift", "clean"))]
    assert list(dict.fromkeys(zip(table["bank"], table["fit"], strict=True))) == kinds
    assert set(table["condition"]) == {"clean", "fog"}
    by_bank = table[table["fit"] == "shift"].groupby("bank")["nll"].mean()
    assert by_bank.nunique() == 2
