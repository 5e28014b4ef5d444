from __future__ import annotations

import logging
import shutil
import tarfile
import time

import numpy as np
import pandas
import pytest

import densecal
from densecal import FeatureBank, Outputs
from densecal.cli import main
from densecal.outputs.shards import shard_name

torch = pytest.importorskip("torch")
ray = pytest.importorskip("ray")

from PIL import Image  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from densecal.integrations import ray as on_ray  # noqa: E402
from densecal.integrations.ray.cluster import worker_errors  # noqa: E402
from densecal.torch import calibrate, extract, extract_shards  # noqa: E402
from tests.reliability.ray_workers import kills_of_ray_workers, same_samples  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:The minimum number of concurrent actors", "ignore::DeprecationWarning"),
    pytest.mark.xdist_group("ray"),  # one Ray for all
]
N_SAMPLES, N_CLASSES, WIDTH = 1200, 5, 16


@pytest.fixture(scope="module", autouse=True)
def session():
    with on_ray.cluster(workers=4):
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        yield


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, N_CLASSES)).eval()


@pytest.fixture(scope="module")
def data(classifier):
    torch.manual_seed(1)
    inputs = torch.randn(N_SAMPLES, WIDTH)
    with torch.inference_mode():
        labels = (8 * classifier(inputs) + torch.randn(N_SAMPLES, N_CLASSES)).argmax(dim=1)
    return TensorDataset(inputs, labels)


@pytest.fixture(scope="module")
def shards(classifier, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards") / "one"
    extract_shards(folder, classifier, data, shard_size=128, batch_size=64, progress=False)
    return folder


@pytest.fixture(scope="module")
def outputs(shards):
    return Outputs.open(shards).load()


@pytest.fixture(scope="module")
def calibrator(classifier, data, outputs):
    inputs, labels = data.tensors
    shifted = extract(classifier, [(inputs + torch.randn_like(inputs), labels)], progress=False)
    return densecal.DAC(FeatureBank(outputs.features, centres=20)).fit(outputs, shifted=shifted)


def test_a_worker_that_dies_is_replaced_and_every_sample_is_written_once():
    tally = kills_of_ray_workers(1, seed=1)
    assert (tally.tried, tally.bad) == (1, [])


def test_an_interrupted_extraction_of_a_ray_data_set_goes_on(classifier, data, outputs, tmp_path):
    rows = [{"id": f"img-{i}", "x": x.numpy(), "y": int(y)} for i, (x, y) in enumerate(zip(*data.tensors, strict=True))]
    ray.data.from_items(rows, override_num_blocks=2).write_parquet(str(tmp_path / "source"))
    images = ray.data.read_parquet(str(tmp_path / "source")).repartition(target_num_rows_per_block=150)

    def batch_fn(batch):
        (tmp_path / "seen" / batch["id"][0]).touch()
        if not (tmp_path / "mended").exists() and len(list((tmp_path / "seen").iterdir())) > 12:
            while all(".pending" in record.name for record in (tmp_path / "out.checkpoint").glob("*.parquet")):
                time.sleep(0.02)
            raise RuntimeError("out of memory, say")
        return (batch["x"],), {}, batch["y"]

    (tmp_path / "seen").mkdir()

    def write():
        found = on_ray.extract(images, lambda: classifier, batch_fn=batch_fn, keep=["id"], batch_size=50, workers=1)
        on_ray.write_shards(found, tmp_path / "out", id_column="id", shard_size=100)

    with pytest.raises(Exception, match="out of memory, say"):
        write()
    begun = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.safetensors")}
    (tmp_path / "mended").touch()
    write()
    whole = Outputs.open(tmp_path / "out").load()
    # A file that was written but not yet recorded is removed, and its samples are read again.
    assert any(path.exists() and path.stat().st_mtime_ns == then for path, then in begun.items())
    assert same_samples(whole, outputs, in_order=False)


@pytest.mark.parametrize("source", ["folder", "tar"])
def test_images_in_folders_and_in_tars_are_classified(source, tmp_path):
    torch.manual_seed(2)
    classifier = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    files = [tmp_path / f"{number:02}.png" for number in range(len(pixels))]
    for file, picture in zip(files, pixels, strict=True):
        Image.fromarray(picture).save(file)
    if source == "folder":
        images, column, key = ray.data.read_images(str(tmp_path), include_paths=True), "image", "path"
    else:
        with tarfile.open(tmp_path / "images.tar", "w") as archive:
            for file in files:
                archive.add(file, file.name)
        images, column, key = ray.data.read_webdataset(str(tmp_path / "images.tar")), "png", "__key__"

    def batch_fn(batch):
        return (torch.as_tensor(batch[column]).permute(0, 3, 1, 2) / 255,), {}, None

    found = on_ray.extract(images, lambda: classifier, batch_fn=batch_fn, keep=[key], batch_size=5, workers=1)
    table = found.to_pandas().sort_values(key)
    with torch.inference_mode():
        expected = classifier(torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255)
    np.testing.assert_allclose(np.stack(table["logits"]), expected, atol=1e-5)


def test_a_bank_is_that_of_one_process(shards, outputs):
    expected, read = FeatureBank(outputs.features, centres=8), on_ray.read_shards(shards)
    for n_samples in (None, N_SAMPLES):
        bank = on_ray.fit_bank(read, id_column="sample", centres=8, n_samples=n_samples)
        for layer in expected.layers:
            np.testing.assert_array_equal(bank[layer], expected[layer])
    with pytest.raises(ValueError, match="1200 rows, but n_samples=7"):
        on_ray.fit_bank(read, n_samples=7)
    by_content = [on_ray.fit_bank(data, centres=8) for data in (read, read.repartition(3))]
    np.testing.assert_array_equal(by_content[0]["1"], by_content[1]["1"])


def test_one_two_and_four_workers_give_the_same_metrics_and_predictions(shards, outputs, calibrator, tmp_path):
    expected = {
        "uncalibrated": densecal.metrics.MetricState().update(densecal.arrays.softmax(outputs.logits), outputs.labels),
        "dac-shift": densecal.metrics.MetricState().update(calibrator.predict_proba(outputs), outputs.labels),
    }
    for n_cpus in (4, 2, 1):  # of 6: as many tasks at a time as leave room
        states = on_ray.evaluate(on_ray.read_shards(shards), calibrator, num_cpus=n_cpus)
        assert list(states) == list(expected)
        for name, state in states.items():
            assert state.compute().as_dict() == pytest.approx(expected[name].compute().as_dict(), abs=1e-12)
    on_ray.predict(on_ray.read_shards(shards), calibrator, keep=["sample"]).write_parquet(str(tmp_path))
    table = pandas.read_parquet(tmp_path).sort_values("sample")
    np.testing.assert_allclose(np.stack(table["probabilities"]), calibrator.predict_proba(outputs), atol=1e-7)
    np.testing.assert_allclose(table["temperature"], calibrator.temperatures(outputs), rtol=1e-6)


def test_a_monitor_sees_the_stream_in_its_order(shards, outputs, calibrator):
    expected = densecal.Monitor(calibrator, window=250, alarm_below=0.5)
    expected.update(outputs, at="monday")
    watch = on_ray.monitor(on_ray.read_shards(shards), calibrator, window=250, alarm_below=0.5, at="monday")
    assert watch.to_dict() == expected.to_dict()
    on_ray.monitor(on_ray.read_shards(shards), watch, at="tuesday", id_column="sample")
    assert watch.n_samples == 2 * N_SAMPLES
    with pytest.raises(TypeError, match="omit window"):
        on_ray.monitor(on_ray.read_shards(shards), watch, window=3)


def test_a_calibrated_model_runs_in_every_worker(classifier, data, tmp_path):
    loader = torch.utils.data.DataLoader(data, batch_size=64)
    model = calibrate(classifier, loader, [data[:600]], method="dac+ts", progress=False)
    inputs = data.tensors[0]
    rows = ray.data.from_numpy([inputs[:300].numpy(), inputs[300:600].numpy()])
    options = {"batch_fn": lambda batch: ((batch["data"],), {}, None), "keep": ["data"], "workers": 1}
    table = on_ray.predict(rows, lambda: model, **options).to_pandas()
    with torch.inference_mode():
        expected = model.predict_proba(torch.tensor(np.stack(table["data"])))
    np.testing.assert_allclose(np.stack(table["probabilities"]), expected, atol=1e-6)


def test_more_workers_than_the_cluster_has_room_for_are_refused(classifier, data):
    with pytest.raises(ValueError, match="40 workers with 1 CPUs"):
        on_ray.extract(ray.data.range(3), classifier, workers=40)
    with pytest.raises(ValueError, match="must have a column 'logits'"), worker_errors():
        on_ray.predict(ray.data.range(3), densecal.TemperatureScaling().fit(9 * np.eye(3), [0, 1, 2])).take_all()


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, 6), ({"num_gpus": 1}, 4), ({"num_cpus": 0, "num_gpus": 1}, 4), ({"num_gpus": 0.5}, 6), ({"num_cpus": 0}, 1)],
)
def test_by_default_workers_fill_the_cluster(classifier, monkeypatch, options, expected):
    class Batches:
        def map_batches(self, worker, *, compute, **_):
            return compute.max_size

    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0, "GPU": 4.0})
    assert on_ray.extract(Batches(), classifier, **options) == expected


def test_the_command_has_the_same_results_with_ray(run_main, tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(60_000, 3)).astype(np.float32) * 4
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    for index in range(4):
        rows = slice(15_000 * index, 15_000 * (index + 1))
        Outputs(logits[rows], labels[rows]).save(tmp_path / "test" / shard_name("test", index, 4))
    fitted = densecal.TemperatureScaling().fit(logits[:500], labels[:500])
    fitted.save(tmp_path / "ts.densecal")
    command = ("evaluate", "ts.densecal", "--data", "test", "--resamples", 0, "--json")
    alone, shared = run_main(main, *command), run_main(main, *command, "--engine", "ray")
    assert shared.code == 0, shared.err
    assert shared.json["by_severity"] == approximately(alone.json["by_severity"])
    answer = run_main(main, "apply", "ts.densecal", "--data", "test", "-o", "found", "--engine", "ray", "--json")
    assert answer.code == 0, answer.err
    table = pandas.concat(pandas.read_parquet(path) for path in sorted((tmp_path / "found").iterdir()))
    np.testing.assert_allclose(table[["p0", "p1", "p2"]], fitted.predict_proba(logits), atol=1e-7)
    assert answer.json["mean_confidence"] == pytest.approx(fitted.confidence(logits).mean(), abs=1e-6)
    refused = run_main(main, "apply", "ts.densecal", "--data", "test", "-o", "found.npz", "--engine", "ray")
    assert (refused.code, "must be a folder" in refused.err) == (2, True)


def test_four_workers_write_the_files_of_one_process_and_keep_those_that_are_there(run_main, tmp_path):
    image = pytest.importorskip("PIL.Image")
    for number, label in enumerate(("cat", "dog") * 12):
        (tmp_path / "images" / label).mkdir(parents=True, exist_ok=True)
        picture = np.random.default_rng(number).integers(0, 255, (16, 16, 3), dtype=np.uint8)
        image.fromarray(picture).save(tmp_path / "images" / label / f"{number}.png")
    command = ("extract", "torchvision:resnet18", "--random-weights", "--data", "folder:images", "--batch-size", 2)
    for folder, options in (("one/test", ()), ("ray/test", ("--engine", "ray", "--workers", 4))):
        (tmp_path / folder).mkdir(parents=True)
        if options:  # what an interrupted run has left
            kept = tmp_path / folder / shard_name("test", 1, 6)
            shutil.copy(tmp_path / "one/test" / kept.name, kept)
            before = kept.stat().st_mtime_ns
        torch.manual_seed(0)
        answer = run_main(main, *command, "-o", folder, "--shard-size", 4, "--json", *options)
        assert answer.code == 0, answer.err
        assert answer.json["n_samples"] == len(Outputs.open(tmp_path / folder)) == 24
    one, shared = (
        {path.name: path.read_bytes() for path in (tmp_path / f"{n}/test").iterdir()} for n in ("one", "ray")
    )
    assert len(one) == 6 and one == shared
    assert kept.stat().st_mtime_ns == before


def approximately(found):
    """Return nested lists and mappings to compare with others to nine digits."""
    if isinstance(found, dict):
        return {name: approximately(value) for name, value in found.items()}
    if isinstance(found, list):
        return [approximately(value) for value in found]
    return pytest.approx(found, abs=1e-9) if isinstance(found, float) else found
