from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from densecal import DAC, FeatureBank, Outputs, SplineCalibration, TemperatureScaling, load, make_calibrator
from densecal.calibrators.state import learned_numbers
from densecal.evaluation import Condition, evaluate_conditions
from densecal.outputs import Distances
from densecal.report import judge, render_report, write_report
from densecal.report.charts.severity import overall_chart, shared_top
from densecal.report.comparison import MOST_NATURAL_SHIFTS
from densecal.report.sections import density_section
from densecal.report.svg import Canvas, nice_ticks
from densecal.report.text import INTERVALS_EXPLAINED, bank_text, cautions

VOID = {"meta", "link", "input", "br", "img", "hr"}


class Checker(HTMLParser):
    """Read a page strictly: every element that is opened is closed in its order."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links = [], [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes[name] for name in ("src", "href") if name in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(table, fitted, drifting):
    return render_report(table, fitted, title="Trust & doubt", validation=drifting["val"])


def test_the_page_is_well_formed_and_every_id_is_used_once(page):
    checker = Checker()
    checker.feed(page)
    assert not checker.open
    assert len(checker.ids) == len(set(checker.ids))


def test_the_page_loads_nothing_from_anywhere(page):
    checker = Checker()
    checker.feed(page)
    assert all(link.startswith(("#", "data:")) for link in checker.links)
    assert not re.search(r"https?://|@import|url\(", page)


def test_every_class_and_place_that_style_and_script_name_is_on_the_page(page):
    body = page[page.index("<body>") :]
    written = set(" ".join(re.findall(r'class="([^"]*)"', body)).split())
    for name in ("metadata", "details", "tile", "caption", "calibrator"):
        assert name in written or f"<{name}" in body
    for place in re.findall(r'querySelectorAll\("#([a-z-]+)', page):
        assert f'id="{place}"' in body


def test_every_link_within_the_page_leads_somewhere(page):
    checker = Checker()
    checker.feed(page)
    assert {link[1:] for link in checker.links if link.startswith("#")} <= set(checker.ids)


def test_every_drawing_says_in_words_what_it_shows(page):
    drawings = re.findall(r"<svg [^>]*>", page)
    assert len(drawings) > 20
    assert all('role="img"' in one and re.search(r'aria-label="[^"]{15,}"', one) for one in drawings)


def test_text_from_outside_is_escaped(page, table, fitted):
    assert "Trust &amp; doubt" in page
    assert "<script>alert" not in render_report(table, fitted, title="<script>alert(1)</script>")


def test_the_page_tells_the_verdict_the_numbers_the_facts_and_the_data(page, table):
    for words in ("Verdict", "four centres", "other classes", "AUROC", "Tomani", "DAC + ETS", "Layer importance"):
        assert words in page
    assert f"{100 * table.estimate('dac+ets').estimate:.1f}" in page


def test_the_page_says_why_an_interval_can_end_at_its_value(page):
    assert INTERVALS_EXPLAINED in page
    assert "biased upwards" in INTERVALS_EXPLAINED
    assert "mostly below" in INTERVALS_EXPLAINED


def test_without_resamples_no_interval_is_promised_drawn_or_explained(fitted, conditions):
    page = render_report(evaluate_conditions(fitted, conditions, n_resamples=0), fitted, title="Trust")
    # Each bin of the reliability diagrams has its own whisker, which needs no resamples of the table.
    told = re.sub(r"<style>.*?</style>|<script>.*?</script>", "", page, flags=re.S)
    assert not re.search(r"intervals?\b|[Bb]ands|brackets|\(– to –\)|\bnan\b", told)
    assert 'class="band"' not in told


def test_without_resamples_every_error_still_lies_within_its_axis(fitted, conditions):
    table = evaluate_conditions(fitted, conditions, n_resamples=0)
    assert shared_top(table, table.methods) >= 100 * table.by_severity()["value"].max()


def test_no_number_is_missing_or_not_a_number(page):
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b|Undefined", re.sub(r"<script>.*?</script>", "", page, flags=re.S))


def test_the_file_appears_whole_with_the_table_returned(tmp_path, fitted, conditions):
    table = write_report(tmp_path / "deep" / "report.html", fitted, conditions)
    assert (tmp_path / "deep" / "report.html").read_text().rstrip().endswith("</html>")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["report.html"]
    assert table.methods[0] == "uncalibrated"


def test_a_table_without_the_metrics_a_report_needs_is_refused_with_their_names(fitted, conditions, tmp_path):
    table = evaluate_conditions(fitted, conditions, metrics=["ece", "brier"], n_resamples=0)
    with pytest.raises(ValueError, match=r"needs.*ece, accuracy, mean_confidence.*lacks accuracy, mean_confidence"):
        write_report(tmp_path / "r.html", fitted, conditions, table=table)
    assert not (tmp_path / "r.html").exists()


def test_a_table_of_the_needed_metrics_and_one_more_is_enough_for_a_report(fitted, conditions, tmp_path):
    metrics = ["ece", "accuracy", "mean_confidence", "ks"]
    table = evaluate_conditions(fitted, conditions, metrics=metrics, n_resamples=0)
    write_report(tmp_path / "r.html", fitted, conditions, table=table)
    assert "KS (%)" in (tmp_path / "r.html").read_text()


def test_clean_data_and_one_method_are_enough(drifting, tmp_path):
    val = drifting["val"]
    fitted = {"ts": TemperatureScaling().fit(val.logits, val.labels)}
    write_report(tmp_path / "r.html", fitted, [Condition("clean", drifting["test-0"])])
    text = (tmp_path / "r.html").read_text()
    assert "How large is the error?" in text
    assert 'id="severity"' not in text


@pytest.mark.parametrize("with_ts", [False, True])
def test_dac_alone_is_not_in_the_row_of_no_calibration(drifting, conditions, with_ts):
    val, bank = drifting["val"], FeatureBank(drifting["train"].features, k=10)
    fitted = {"ts": TemperatureScaling().fit(val)} if with_ts else {}
    table = evaluate_conditions({**fitted, "dac": DAC(bank).fit(val)}, conditions, n_resamples=0)
    chart = overall_chart(table, table.methods)
    uncalibrated, other = chart.split('"row-name"')[1:]
    assert ">Uncalibrated<" in uncalibrated and (">TS<" if with_ts else ">DAC<") in other
    assert ("DAC: " in uncalibrated, "DAC: " in other) == (False, True)


def words_of(page):
    page = re.sub(r"<style>.*?</style>|<script>.*?</script>", "", page, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_one_set_of_one_sample_is_written_in_the_singular(drifting, tmp_path):
    sets = [
        Condition("one", drifting["test-0"][:1]),
        Condition("other classes", drifting["ood"][:1], out_of_domain=True),
    ]
    write_report(tmp_path / "r.html", {}, sets)
    text = (tmp_path / "r.html").read_text()
    assert "1 in 1 set" in words_of(text)
    assert not re.search(r"\b1 (samples|sets|rows|classes)\b", text.replace("\u202f", " "))


def test_a_single_test_set_is_not_called_all_severities_and_has_its_tile_and_name(drifting, fitted, tmp_path):
    write_report(tmp_path / "r.html", fitted, [Condition("night drive", drifting["test-2"], severity=2)])
    text = (tmp_path / "r.html").read_text()
    assert "all severities" not in text.lower()
    assert "the strongest shift" not in text
    assert 'aria-label="Error at severity 2"' in text
    write_report(tmp_path / "r.html", fitted, [Condition("night drive", drifting["test-2"])])
    assert "Clean data 300 samples · night drive" in words_of((tmp_path / "r.html").read_text())


def test_several_sets_of_one_severity_are_a_mean_over_test_sets(drifting, fitted, tmp_path):
    write_report(tmp_path / "r.html", fitted, [Condition(name, drifting["test-2"], severity=2) for name in "ab"])
    text = (tmp_path / "r.html").read_text()
    assert "mean error over all test sets (points)" in text
    assert "all severities" not in text.lower()


def test_several_sets_without_a_severity_are_not_called_clean_data(drifting, fitted, tmp_path):
    conditions = [Condition("test", drifting["test-0"]), Condition("noisy", drifting["test-3"])]
    write_report(tmp_path / "r.html", fitted, conditions)
    words = words_of((tmp_path / "r.html").read_text())
    assert "On the sets without a severity (test and noisy) the classifier is right" in words
    assert "Without a severity: test and noisy" in words
    assert "clean data" not in words.lower()
    assert "The errors here are those of all samples of several sets together" in words
    write_report(tmp_path / "r.html", fitted, conditions[:1])
    words = words_of((tmp_path / "r.html").read_text())
    assert "On clean data the classifier is right" in words and "Clean data: test" in words
    assert "several sets together" not in words


def test_severities_intervals_layers_and_equal_rows_are_explained_where_they_are_shown(drifting, fitted, tmp_path):
    conditions = [Condition.from_outputs(drifting[name]) for name in ("test-0", "test-3")]
    write_report(tmp_path / "r.html", {**fitted, "mine": fitted["ets"]}, conditions)
    words = words_of((tmp_path / "r.html").read_text())
    assert "The severity is the strength of the shift: the larger, the stronger." in words
    assert "in these layers of the classifier" in words
    assert "ETS and mine have the same error on every test set." in words
    assert words.index("Bands and whiskers are") > words.index("How large is the error under shift?")


def test_the_figure_of_natural_shifts_says_that_it_is_about_clean_data(drifting, fitted, tmp_path):
    conditions = [Condition("test", drifting["test-0"]), Condition("abroad", drifting["test-3"], natural=True)]
    write_report(tmp_path / "r.html", fitted, conditions)
    text = (tmp_path / "r.html").read_text()
    assert "error on clean data (points)" in text and "all test sets" not in text


def test_many_natural_shifts_leave_the_page_short_and_keep_their_names(drifting, fitted, tmp_path):
    shifts = [Condition(f"site-{number} USA", drifting["test-3"], natural=True) for number in range(9)]
    write_report(tmp_path / "r.html", fitted, [Condition("test", drifting["test-0"]), *shifts])
    text = (tmp_path / "r.html").read_text()
    assert text.count('class="tile"') == 1 + MOST_NATURAL_SHIFTS
    assert 'class="level-name">site-8 USA (natural shift)' in text


def test_the_size_of_a_set_is_told_also_where_only_some_samples_are_drawn(drifting, fitted, tmp_path):
    """The metrics are those of all samples; only the intervals are from a part of them."""
    drawn = Condition("test", drifting["test-0"][:300], sampled_from=4321)
    write_report(tmp_path / "r.html", {"ts": fitted["ts"]}, [drawn])
    text = (tmp_path / "r.html").read_text()
    assert text.count(">4,321</td>") == 3 and ">300</td>" not in text


@pytest.fixture(scope="module")
def named(drifting, fitted):
    calibrators = {"base": fitted["ts"], "mine": fitted["dac+ts"]}
    sets = [Condition.from_outputs(drifting[name]) for name in ("test-0", "test-3")]
    return evaluate_conditions(calibrators, sets, n_resamples=20), calibrators


def test_marks_and_lines_are_those_of_the_calibrator_whatever_its_name(named):
    page = render_report(*named, title="Named")
    for name, css in {"mine": "mark filled", "base": "mark"}.items():
        found = set(re.findall(rf'class="(mark[^"]*)" style="--c:var\(--m-{name}\)', page))
        assert found == {css}
    assert re.search(r'class="curve solid" style="--c:var\(--m-mine\)', page)
    assert re.search(r'--m-mine\)">\s*<dt>mine</dt>\s*<dd>.*</dd>\s*<span class="meter filled"', page)


def test_the_lowest_error_of_a_card_is_bold_as_it_is_in_the_table(named):
    table, calibrators = named
    worse = replace(table, values={**table.values, ("mine", "ece"): np.array([0.5, 0.01])})
    page = render_report(worse, calibrators, title="Named")
    cards = re.findall(r'<section class="tile".*?</section>', page, re.DOTALL)
    bold = {
        re.search("<h3>(.*)</h3>", card)[1]: re.findall(r'"tile-row best".*\n\s*<dt>(.*)</dt>', card) for card in cards
    }
    assert bold["On clean data"] == ["base"]
    assert bold["At severity 3"] == ["mine"]


def test_whose_error_is_not_that_of_the_probabilities_is_told(drifting, fitted, tmp_path):
    val, conditions = drifting["val"], [Condition("clean", drifting["test-0"])]
    spline = SplineCalibration().fit(val.logits, val.labels)
    write_report(tmp_path / "r.html", {"spl": spline, "mine": spline, "ts": fitted["ts"]}, conditions)
    told = re.findall(r"[^.>]*predict_proba[^.]*\.", (tmp_path / "r.html").read_text())
    assert len(told) == 1
    assert "SPL, mine" in told[0]
    write_report(tmp_path / "r.html", {"ts": fitted["ts"]}, conditions)
    assert "predict_proba" not in (tmp_path / "r.html").read_text()


def test_shifted_data_alone_are_enough(drifting, fitted, tmp_path):
    conditions = [
        Condition("noise", drifting["test-2"], severity=2),
        Condition("noise", drifting["test-3"], severity=3),
    ]
    write_report(tmp_path / "r.html", fitted, conditions)
    assert "severity 2" in (tmp_path / "r.html").read_text()


def test_distances_without_features_are_enough_for_the_density_section(drifting, tmp_path):
    rng = np.random.default_rng(0)
    val, test = drifting["val"], drifting["test-3"]
    dac = DAC().fit(val.logits, val.labels, distances=rng.uniform(0.2, 1, (len(val), 2)))
    far = Distances(rng.uniform(0.2, 1, (len(test), 2)), ("early", "late"), 1)
    bare = Outputs(test.logits, test.labels).with_distances(far)
    write_report(tmp_path / "r.html", {"dac": dac}, [Condition("noise", bare, severity=3)])
    text = (tmp_path / "r.html").read_text()
    assert "What DAC looks at" in text
    assert "Temperature against distance" in text


def test_temperatures_of_the_published_codes_scores_are_those_of_the_saved_calibrator(drifting, tmp_path):
    val, test = drifting["val"], drifting["test-3"]
    bank = FeatureBank(drifting["train"].features, k=10)
    DAC(bank, scores="published_code").fit(val).save(tmp_path / "dac.densecal")
    dac = load(tmp_path / "dac.densecal")
    table = evaluate_conditions({"dac": dac}, [Condition("noise", test, severity=3)], n_resamples=0)
    section = density_section(table, {"dac": dac}, judge(table))
    first_neighbour = bank.distances(test.features, k=1)
    expected = dac.bias_ + (first_neighbour**2) @ dac.weights_
    assert section["legend"][0]["mean"] == pytest.approx(float(expected.mean()), rel=1e-5)


def test_learned_numbers_are_those_of_the_state_and_nothing_else(fitted):
    scaling = fitted["ts"]
    assert learned_numbers(scaling) == [("temperature", f"{scaling.temperature_:.3g}")]
    scaling.cached_ = 3.0
    try:
        assert "cached" not in dict(learned_numbers(scaling))
    finally:
        del scaling.cached_


def test_learned_numbers_of_a_chain_are_those_of_all_its_stages(fitted):
    names = [name for name, _ in learned_numbers(fitted["dac+ts"])]
    assert {"bias", "layer importance", "temperature"} <= set(names)


@pytest.mark.filterwarnings("ignore::densecal.CalibrationWarning")
def test_an_optimiser_that_did_not_converge_is_cautioned_against_in_a_whole_sentence(table, drifting):
    dac = stuck_at_its_bound(drifting, converged_=False)
    assert "DAC: the optimiser did not converge." in cautions(table, {"dac": dac})


def test_a_small_validation_set_and_a_missing_class_are_cautioned_against(table, fitted):
    few = Outputs(np.random.default_rng(0).normal(size=(40, 4)), labels=[0, 1, 2, 1] * 10)
    found = " ".join(cautions(table, fitted, validation=few))
    assert "40 samples for 4 classes" in found
    assert "Class 3 is not in the validation set" in found


@pytest.mark.filterwarnings("ignore::densecal.CalibrationWarning")
def test_an_active_bound_is_cautioned_against(table, drifting):
    val = drifting["val"]
    stuck = TemperatureScaling().fit(val.logits, (val.logits.argmax(axis=1) + 1) % val.n_classes)
    assert any("temperature reached its bound, 10000" in one for one in cautions(table, {"ts": stuck}))


def test_a_temperature_within_its_bounds_is_no_caution_in_any_units(table, drifting):
    val = drifting["val"]
    large = TemperatureScaling().fit(val.logits * 2000, val.labels)
    assert large.temperature_ > 1000
    assert not any("bound" in one for one in cautions(table, {"ts": large}))


@pytest.mark.filterwarnings("ignore::densecal.CalibrationWarning")
def test_a_dac_that_uses_no_layer_is_cautioned_against(table, drifting):
    val = drifting["val"]
    dac = DAC().fit(val.logits, val.labels, distances=np.ones((len(val), 2)))
    dac.weights_ = np.zeros(2)
    assert any("every layer zero weight" in one for one in cautions(table, {"dac": dac}))


def stuck_at_its_bound(drifting, **others):
    val = drifting["val"]
    dac = DAC().fit(val.logits, val.labels, distances=np.random.default_rng(0).uniform(0.2, 1, (len(val), 2)))
    dac.weights_, dac.bias_ = np.ones(2), 0.0
    for name, value in others.items():
        setattr(dac, name, value)
    return dac


@pytest.mark.filterwarnings("ignore::densecal.CalibrationWarning")
def test_a_constant_part_at_its_bound_is_told_once_with_the_methods_it_is_about(table, drifting, fitted):
    dac = stuck_at_its_bound(drifting)
    (told,) = (one for one in cautions(table, {"dac": dac, "dac+ts": dac, "ts": fitted["ts"]}) if "w₀" in one)
    assert told.startswith("DAC, DAC + TS: ")
    assert "distance near zero" in told


@pytest.mark.filterwarnings("ignore::densecal.CalibrationWarning")
def test_a_shift_fit_whose_constant_is_a_factor_is_not_cautioned_for_its_bound(table, drifting):
    dac = stuck_at_its_bound(drifting, excess_spread_=np.ones(2))
    assert not any("w₀" in one for one in cautions(table, {"dac-shift": dac}))


def test_warnings_of_the_fit_come_first_and_once(table, fitted):
    found = cautions(table, fitted, given=["The fit said so.", "The fit said so."])
    assert found[0] == "The fit said so."
    assert found.count("The fit said so.") == 1


@pytest.mark.parametrize(("high", "last"), [(23, 25), (0.07, 0.08), (100, 100), (0, 1)])
def test_ticks_are_round_and_reach_the_largest_value(high, last):
    assert nice_ticks(high)[-1] == pytest.approx(last)


def test_a_canvas_puts_larger_values_higher_and_further_right():
    canvas = Canvas((200, 100), "scales", xlim=(0, 10), ylim=(0, 1))
    assert canvas.x(10) > canvas.x(0)
    assert canvas.y(1) < canvas.y(0)


def test_the_bank_is_described_by_the_neighbour_that_is_measured(drifting):
    bank = FeatureBank(drifting["train"].features, k=10)
    for scores, k in (("paper", 10), ("published_code", 1)):
        dac = DAC(bank, scores=scores).fit(drifting["val"])
        assert f"k = {k};" in bank_text(dac)


def test_learned_numbers_of_equal_names_are_told_by_their_stage(drifting):
    val = drifting["val"]
    twice = make_calibrator("ts+ets").fit(val.logits, val.labels)
    names = [name for name, _ in learned_numbers(twice)]
    assert {"ts: temperature", "ets: temperature"} <= set(names)
    assert len(set(names)) == len(names)


def test_a_report_of_a_calibrator_searches_each_set_once(drifting, conditions, fitted, tmp_path, monkeypatch):
    searches, search = [], FeatureBank.distances
    monkeypatch.setattr(
        FeatureBank, "distances", lambda *a, **options: searches.append(options) or search(*a, **options)
    )
    write_report(tmp_path / "r.html", {"dac+ts": fitted["dac+ts"]}, conditions)
    assert len(searches) == len(conditions)
