from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from densecal import FeatureBank
from densecal.demo import DATA, load_demo, open_demo, run_demo

LIMIT = 5_000_000


@pytest.fixture(scope="module")
def result():
    return run_demo(n_resamples=100)


def test_the_data_are_small_enough_for_the_package_and_say_where_they_come_from():
    assert sum(path.stat().st_size for path in DATA.iterdir()) <= LIMIT
    assert "make_demo_data.py" in (DATA / "PROVENANCE.md").read_text()


def test_the_data_are_outputs_with_labels_and_features_in_half_precision():
    for name in ("train", "val", "clean", *(f"shifted-{severity}" for severity in range(1, 6))):
        outputs = load_demo(name)
        assert outputs.labels is not None
        assert all(array.dtype == np.float16 for array in outputs.features.values())
        assert outputs.metadata["classifier"]


def test_a_set_that_does_not_exist_is_answered_with_those_that_do():
    with pytest.raises(ValueError, match=r"no set 'rain-9'.*shifted-5"):
        load_demo("rain-9")


def test_the_demo_compares_every_method_without_and_with_dac(result):
    plain = ("uncalibrated", "ts", "ets", "spl")
    assert result.table.methods == (*plain, "dac", "dac+ts", "dac+ets", "dac+spl", "dac-shift+ets")
    assert result.table.severities == (0, 1, 2, 3, 4, 5)


def test_calibration_makes_the_confidences_more_honest(result):
    for method in ("ts", "ets", "spl"):
        gain = result.table.difference(method, "uncalibrated")
        assert gain.high < 0


def test_the_answers_of_the_classifier_stay_as_they_were(result):
    expected = result.table.values["uncalibrated", "accuracy"]
    for method in result.table.methods:
        np.testing.assert_allclose(result.table.values[method, "accuracy"], expected, atol=1e-12)


def test_the_shift_makes_the_classifier_worse_and_takes_it_away_from_its_training_data(result):
    accuracies = [result.table.estimate("uncalibrated", "accuracy", s).estimate for s in range(6)]
    assert accuracies == sorted(accuracies, reverse=True)
    demo = open_demo()
    bank = FeatureBank(demo.train.features, k=demo.k)
    near, far = (bank.distances(load_demo(name)[:500].features).mean() for name in ("clean", "shifted-5"))
    assert far > near


def test_the_demo_needs_no_torch(tmp_path):
    code = (
        "import sys\n"
        "from densecal.cli import main\n"
        f"code = main(['demo', '-o', r'{tmp_path / 'report.html'}'])\n"
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "DAC + ETS" in done.stdout
    assert "Fashion-MNIST" in (tmp_path / "report.html").read_text()
