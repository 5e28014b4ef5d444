from __future__ import annotations

import numpy as np

from densecal.estimation.domains import CLEAN, FEWEST_SAMPLES, make_domains


def test_domains_are_clean_groups_named_groups_and_mixtures_within_the_data():
    names = ["blur/weak"] * 200 + ["blur/strong"] * 200 + ["fog"] * 100
    domains = make_domains(names, n_clean=300)
    assert {domain.kind for domain in domains} == {CLEAN, "blur", "fog"}
    assert sum(np.array_equal(domain.rows, 300 + np.arange(200)) for domain in domains) == 1
    clean = np.concatenate([domain.rows for domain in domains if domain.kind == CLEAN])
    assert clean.max() < 300
    mixed = [domain.rows for domain in domains if domain.kind == "fog" and domain.rows.min() < 700 <= domain.rows.max()]
    assert mixed
    assert max(domain.rows.max() for domain in domains) < 800


def test_tiny_domains_count_only_if_there_is_nothing_else():
    names = ["fog"] * FEWEST_SAMPLES + ["dusk"] * 3
    assert {domain.kind for domain in make_domains(names, 100)} == {CLEAN, "fog"}
    alone = [domain.rows for domain in make_domains(["dusk"] * 3, 100) if domain.kind != CLEAN]
    assert set(np.concatenate(alone)) >= {100, 101, 102}
