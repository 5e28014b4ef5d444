from __future__ import annotations

import numpy as np

from densecal.estimation.domains import FEWEST_SAMPLES, make_domains, rows_by_domain


def test_domains_are_named_groups_and_mixtures_within_the_data():
    names = ["blur/weak"] * 200 + ["blur/strong"] * 200 + ["fog"] * 100
    domains = make_domains(names, n_clean=300)
    assert {domain.kind for domain in domains} == {"blur", "fog"}
    named = [domain.rows for domain in domains if not domain.is_mixture]
    assert sorted(map(len, named)) == [100, 200, 200]
    assert np.array_equal(np.sort(np.concatenate(named)), np.arange(300, 800))
    mixed = [domain.rows for domain in domains if domain.kind == "fog" and domain.is_mixture]
    assert any(rows.min() < 700 <= rows.max() for rows in mixed)
    assert max(domain.rows.max() for domain in domains) < 800


def test_tiny_domains_count_only_if_there_is_nothing_else():
    names = ["fog"] * FEWEST_SAMPLES + ["dusk"] * 3
    assert {domain.kind for domain in make_domains(names, 100)} == {"fog"}
    alone = [domain.rows for domain in make_domains(["dusk"] * 3, 100)]
    assert set(np.concatenate(alone)) >= {100, 101, 102}


def test_small_domains_are_joined_with_those_of_their_kind_and_then_with_others():
    small = FEWEST_SAMPLES - 1
    names = ["fog/weak"] * 40 + ["blur/weak"] * small + ["blur/strong"] * small + ["rain"] * small + ["snow"] * 5
    found = [{names[row] for row in rows} for rows in rows_by_domain(names)]
    assert found == [{"fog/weak"}, {"blur/weak", "blur/strong"}, {"rain", "snow"}]
