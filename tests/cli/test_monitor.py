from __future__ import annotations

import shutil

import numpy as np
import pytest

from densecal import Outputs
from densecal.demo import load_demo


def test_each_file_is_a_window_and_an_alarm_has_its_exit_status(densecal, folder):
    files = sorted(folder.glob("day-*.safetensors"))
    answer = densecal("monitor", folder / "cal", "--data", *files, "--alarm-below", "0.8", "-o", "page.html", "--json")
    assert answer.code == 3
    windows = answer.json["windows"]
    assert [window["end_at"] for window in windows] == [f"day-{day}" for day in range(1, 6)]
    assert [window["n_labels"] for window in windows] == [0, 0, 600, 0, 0]
    (alarm,) = answer.json["alarms"]
    assert (alarm["since_at"], alarm["until_at"]) == ("day-3", "day-5")


def test_without_an_alarm_the_status_is_zero_and_the_page_is_complete(densecal, folder, tmp_path):
    answer = densecal("monitor", folder / "cal", "--data", folder / "day-[12].safetensors", "--alarm-below", "0.8")
    assert answer.code == 0  # a pattern that no shell has expanded
    answer = densecal(
        "monitor", folder / "cal", "--data", folder / "day-1.safetensors", "--alarm-below", "0.8", "-o", "page.html"
    )
    assert answer.code == 0
    assert "no alarm" in answer.out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= 3
    assert "http" not in page.split("</style>")[1].split("<script>")[0]


def test_a_state_goes_on_with_the_next_files(densecal, folder):
    first = (
        "monitor",
        folder / "cal",
        "--data",
        folder / "day-*.safetensors",
        "--state",
        "state",
        "--alarm-below",
        "0.8",
    )
    assert densecal(*first).code == 2  # windows across files need a size
    assert densecal(*first, "--window", "500").code == 3
    load_demo("clean")[1800:].save("day-6.safetensors")
    again = densecal("monitor", folder / "cal", "--data", "day-6.safetensors", "--state", "state", "--json")
    n_samples = 3000 + len(load_demo("clean")) - 1800
    assert (again.code, again.json["n_samples"], len(again.json["windows"])) == (0, n_samples, n_samples // 500)
    refused = densecal(
        "monitor", folder / "cal", "--data", folder / "day-1.safetensors", "--state", "state", "--window", 9
    )
    assert refused.code == 2
    assert "state was started with --window 500. Pass the same, or use another file." in refused.err
    assert densecal(*first, "--window", "500").code == 0, "one line of a crontab serves every night"
    shown = densecal("inspect", "state")
    assert (shown.code, "state is the state of a monitor. `densecal monitor" in shown.err) == (1, True)


def test_alphabetical_order_is_pointed_out_where_numbers_differ(densecal, folder, tmp_path):
    for number, day in ((1, 1), (2, 2), (10, 5)):
        shutil.copy(folder / f"day-{day}.safetensors", tmp_path / f"day-{number}.safetensors")
    names = ("day-1.safetensors", "day-10.safetensors", "day-2.safetensors")
    answer = densecal("monitor", folder / "cal", "--data", *names, "--alarm-below", "0.8")
    assert "alphabetical order" in answer.err
    answer = densecal("monitor", folder / "cal", "--data", names[0], names[2], names[1], "--alarm-below", "0.8")
    assert answer.err == ""


def test_prometheus_gets_a_file(densecal, folder, tmp_path):
    pytest.importorskip("prometheus_client")
    arguments = ("--data", folder / "day-3.safetensors", "--alarm-below", "0.8", "--prometheus", "densecal.prom")
    assert densecal("monitor", folder / "cal", *arguments).code == 3
    assert 'densecal_alarm{model="classifier"} 1.0' in (tmp_path / "densecal.prom").read_text()


def test_a_command_that_cannot_write_counts_nothing(densecal, folder, tmp_path, monkeypatch):
    run = ("monitor", folder / "cal", "--data", folder / "day-3.safetensors", "--alarm-below", "0.8", "--window", 500)
    run = (*run, "--state", "state", "-o", "page.html", "--prometheus")
    nowhere = densecal(*run, "missing/densecal.prom")
    assert (nowhere.code, "the folder missing does not exist" in nowhere.err) == (1, True)
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as patched:
        patched.setattr("densecal.errors.find_spec", lambda name: None)
        without_package = densecal(*run, "densecal.prom")
    assert (without_package.code, "densecal[monitor]" in without_package.err) == (1, True)
    assert list(tmp_path.iterdir()) == []

    def fail(monitor):
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("densecal.monitor.prometheus.prometheus_text", fail)
        assert densecal(*run, "densecal.prom").code == 1
    assert not (tmp_path / "state").exists()


def test_a_calibrator_that_cannot_estimate_says_what_to_do(densecal, folder, artefacts, complains):
    answer = densecal("monitor", artefacts / "dac+ts.densecal", "--data", folder / "day-1.safetensors")
    assert (answer.code, complains(answer)) == (1, True)
    assert "shifted" in answer.err


def test_labels_that_arrive_later_are_shown_beside_the_estimates(densecal, folder, tmp_path):
    import pandas as pd

    days = {day: load_demo(name)[:300] for day, name in (("mon", "clean"), ("tue", "shifted-5"))}
    for day, outputs in days.items():
        columns = {
            f"features/{layer}/{i}": part for layer, all_ in outputs.features.items() for i, part in enumerate(all_.T)
        }
        logits = {f"logit{i}": column for i, column in enumerate(outputs.logits.T)}
        pd.DataFrame({"key": [f"{day}-{i:03}" for i in range(300)], **logits, **columns}).to_csv(
            f"{day}.csv", index=False
        )
        late = {"key": [f"{day}-{i:03}" for i in range(200)], "truth": outputs.labels[:200]}
        pd.DataFrame(late).to_csv(f"{day}-labels.csv", index=False)
    run = ("monitor", folder / "cal", "--state", "state", "--window", 300, "--alarm-below", 0.8, "--id", "key")
    first = densecal(*run, "--data", "mon.csv", "tue.csv", "--json")
    assert [window["n_labels"] for window in first.json["windows"]] == [0, 0]
    then = densecal(
        *run, "--late-labels", "mon-labels.csv", "--late-labels", "tue-labels.csv", "--labels", "truth", "--json"
    )
    right = [int((days[day].logits[:200].argmax(1) == days[day].labels[:200]).sum()) for day in days]
    assert [window["n_right"] for window in then.json["windows"]] == right
    assert (then.code, then.err) == (first.code, "")
    again = densecal(*run, "--late-labels", "mon-labels.csv", "--labels", "truth")
    assert "mon-labels.csv: 200 of 200 ids match no sample that waits for a label" in again.err.replace("\n", " ")
    (tmp_path / "unknown.csv").write_text("key,truth\nnobody,1\n")
    unknown = densecal(*run, "--late-labels", "unknown.csv", "--labels", "truth")
    assert unknown.err.count("1 ids") == unknown.err.count("warning:") == 1


def test_late_labels_need_an_id_and_a_monitor_that_waits_for_them(densecal, folder, tmp_path):
    (tmp_path / "labels.csv").write_text("key,label\na,1\n")
    without_id = densecal("monitor", folder / "cal", "--late-labels", "labels.csv", "--state", "state")
    assert (without_id.code, "--late-labels needs --id" in without_id.err) == (2, True)
    without_data = densecal("monitor", folder / "cal", "--late-labels", "labels.csv", "--id", "key")
    assert (without_data.code, "need the --state of a" in without_data.err) == (2, True)
    data = ("--data", folder / "day-1.safetensors", "--alarm-below", 0.8)
    elsewhere = densecal("monitor", folder / "cal", *data, "--late-labels", "labels.csv", "--id", "name")
    assert elsewhere.code == 1


def test_mistakes_with_late_labels_say_what_to_do(densecal, folder, tmp_path):
    (tmp_path / "a.csv").write_text("key,label\n0,cat\n1,dog\n")
    (tmp_path / "b.csv").write_text("key,label\n2,dog\n")
    data = ("--data", folder / "day-1.safetensors", "--state", "state", "--window", 300, "--alarm-below", 0.8)
    assert densecal("monitor", folder / "cal", *data).code == 0
    run = ("monitor", folder / "cal", "--state", "state", "--id", "key", "--late-labels", "a.csv")
    unnamed = densecal(*run)
    assert unnamed.code == 1
    assert "a.csv has the labels cat, dog, but neither the calibrator nor data of this call name" in unnamed.err
    assert "--classes with all 10 names, in the order of the scores" in unnamed.err
    as_data = densecal(*run, "b.csv")
    assert (as_data.code, "repeat --late-labels before each" in as_data.err) == (1, True)


def test_a_label_finds_its_sample_whatever_type_its_id_has(densecal, folder, tmp_path):
    import numpy as np
    import pandas as pd

    from densecal import Monitor, load

    outputs = load_demo("clean")[:300]
    monitor = Monitor(load(folder / "cal"), window=300, alarm_below=0.8)
    monitor.update(Outputs(outputs.logits, None, outputs.features), ids=list(range(300)))
    pd.DataFrame({"key": np.arange(300.0), "label": outputs.labels}).to_parquet("labels.parquet")
    pd.DataFrame({"key": [None, 7.0], "label": [0, 1]}).to_csv("unnamed.csv", index=False)
    for name in ("labels.parquet", "unnamed.csv"):
        monitor.save("state")
        run = ("monitor", folder / "cal", "--state", "state", "--id", "key", "--late-labels", name, "--json")
        answer = densecal(*run)
        if name == "unnamed.csv":
            assert (answer.code, "the id of row 0 is missing" in answer.err) == (1, True)
        else:
            assert answer.json["windows"][0]["n_labels"] == 300


def test_samples_after_the_last_window_are_not_called_right(densecal, folder):
    run = ("monitor", folder / "cal", "--state", "state", "--window", 500, "--alarm-below", 0.8, "--data")
    first = densecal(*run, folder / "day-1.safetensors")
    assert first.code == 0
    assert "100 samples after the last window" in first.out.replace("\n", " ")
    second = densecal(*run, folder / "day-3.safetensors", "--json")
    assert second.json["n_open"] == 200


def test_a_first_night_below_the_window_is_kept_for_the_next(densecal, folder, tmp_path):
    run = ("monitor", folder / "cal", "--window", 1000, "--alarm-below", 0.8, "--data")
    refused = densecal(*run, folder / "day-1.safetensors")
    assert (refused.code, "fewer than --window 1,000" in refused.err) == (1, True)
    first = densecal(*run, folder / "day-1.safetensors", "--state", "state")
    assert (first.code, "no window yet" in first.out) == (0, True)
    then = densecal(*run, folder / "day-2.safetensors", "--state", "state", "--json")
    assert (len(then.json["windows"]), then.json["n_samples"], then.json["n_open"]) == (1, 1200, 200)


def test_an_estimate_below_the_limit_without_an_alarm_says_what_an_alarm_needs(densecal, folder, tmp_path):
    for name in ("shifted-2", "shifted-5"):
        outputs = load_demo(name)[:600]
        Outputs(outputs.logits, None, outputs.features).save(f"{name}.safetensors")
    run = ("monitor", folder / "cal", "--alarm-below", "0.82", "-o", "page.html", "--data", "shifted-2.safetensors")
    quiet = densecal(*run)
    said = " ".join(quiet.out.split())
    assert quiet.code == 0
    assert "below 82.0 %, but not by enough for an alarm." in said
    needed = (
        "With 4,000 validation samples and windows of 600 samples, an alarm is raised if one window lies below about 7"
    )
    assert said.count(needed) == 1
    assert "chance may explain" not in (tmp_path / "page.html").read_text(encoding="utf-8")
    rung = " ".join(densecal(*run, "shifted-5.safetensors").out.split())
    assert "Alarm since shifted-2, raised at shifted-5." in rung
    assert "alarm since shifted-2 (sample 0), raised at shifted-5: the estimated accuracy" in rung


def test_labels_are_shown_with_their_number_and_interval(densecal, folder):
    answer = densecal("monitor", folder / "cal", "--data", folder / "day-3.safetensors", "--alarm-below", "0.8")
    shown = " ".join(answer.out.split()).replace("\u202f", " ")
    right = load_demo("shifted-5")[:600]
    share = (right.logits.argmax(axis=1) == right.labels).mean()
    assert f"{100 * share:.1f} % of 600 (" in shown
    assert f"On 600 labels of day-3 the accuracy is {100 * share:.1f} % (" in shown


def test_a_state_alone_gives_the_page_the_json_and_the_status_again(densecal, folder, tmp_path):
    run = ("monitor", folder / "cal", "--state", "state", "--json")
    assert densecal(*run).code == 2
    first = densecal(*run, "--window", 600, "--alarm-below", 0.8, "--data", folder / "day-3.safetensors")
    again = densecal(*run, "-o", "page.html")
    assert (again.code, {**again.json, "report": None}) == (first.code, first.json)
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize("suffix", ["csv", "npz", "safetensors"])
def test_a_day_without_samples_is_skipped_with_a_warning(densecal, folder, tmp_path, suffix):
    outputs = load_demo("clean")[:0]
    if suffix == "csv":
        layers = {layer: array.shape[1] for layer, array in outputs.features.items()}
        features = [f"features/{layer}/{place}" for layer, width in layers.items() for place in range(width)]
        (tmp_path / "empty.csv").write_text(",".join([*(f"logit{place}" for place in range(10)), "label", *features]))
    else:
        outputs.save(tmp_path / f"empty.{suffix}")
    empty = f"empty.{suffix}"
    days = (folder / "day-1.safetensors", empty, folder / "day-2.safetensors")
    run = ("monitor", folder / "cal", "--alarm-below", 0.8, "--json")
    for options in ((), ("--state", "state", "--window", 600)):
        answer = densecal(*run, *options, "--data", *days)
        assert answer.code == 0, answer.err
        assert [window["end_at"] for window in answer.json["windows"]] == ["day-1", "day-2"]
        assert answer.err == f"warning: {empty} has no samples and is skipped.\n"
    alone = densecal(*run, "--state", "state", "--data", empty)
    assert (alone.code, alone.json["n_samples"]) == (0, 1200)
    nothing = densecal(*run, "--data", empty)
    assert (nothing.code, "--data holds no samples" in nothing.err) == (1, True)


def test_a_window_that_can_hardly_ring_is_pointed_out(densecal, folder, tmp_path):
    outputs = load_demo("shifted-5")[:600]
    Outputs(outputs.logits, None, outputs.features)[:1].save("one.safetensors")
    run = ("monitor", folder / "cal", "--alarm-below", 0.8, "--data")
    small = densecal(*run, "one.safetensors")
    said = " ".join(small.err.split()).replace("\u202f", " ")
    assert small.code == 0
    assert "warning: An alarm is unlikely: alarm_below is 80.0%, but even eight windows in a row raise one only" in said
    assert "or use larger windows." in said
    assert densecal(*run, folder / "day-1.safetensors").err == ""


def test_a_state_alone_does_not_ask_how_scores_are_to_be_read(densecal, folder, tmp_path):
    for name in ("val", "perturbed", "clean"):
        outputs = load_demo(name)
        odds = np.exp(np.asarray(outputs.logits, float))
        features = {f"features/{layer}": values for layer, values in outputs.features.items()}
        shares = odds / odds.sum(axis=1, keepdims=True)
        np.savez(f"{name}.npz", probabilities=shares.clip(1e-9), labels=outputs.labels, **features)
    read = ("--probabilities", "--scores", "probabilities")
    bank = ("--train", "val.npz", "--shifted", "perturbed.npz")
    assert densecal("fit", "--val", "val.npz", *bank, *read, "--method", "dac", "-o", "p.densecal").code == 0
    settings = ("--window", 500, "--alarm-below", 0.8, "--state", "state")
    assert densecal("monitor", "p.densecal", "--data", "clean.npz", *read, *settings).code == 0
    answer = densecal("monitor", "p.densecal", "--state", "state", "-o", "page.html")
    assert answer.code == 0, answer.err
    assert (tmp_path / "page.html").exists()
