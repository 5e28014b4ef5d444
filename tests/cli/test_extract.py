from __future__ import annotations

import numpy as np
import pytest

from densecal import Outputs
from densecal.cli.extraction import build_model
from densecal.evaluation import read_conditions
from densecal.shift import CIFAR10

torch = pytest.importorskip("torch")
PIL = pytest.importorskip("PIL.Image")

MODEL = """
import torch
from torch import nn

def tiny(num_classes):
    torch.manual_seed(0)
    body = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*body, nn.Linear(4, num_classes))

def text(num_classes):
    return "a model"
"""


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    for label in ("cat", "dog", "owl"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(4):
            picture = rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            PIL.fromarray(picture).save(tmp_path / "images" / label / f"{number}.png")
    (tmp_path / "mymodels.py").write_text(MODEL)
    return "folder:images"


def test_extract_runs_a_users_own_model_over_a_folder(densecal, images, tmp_path):
    answer = densecal(
        "extract", "mymodels:tiny", "--data", images, "-o", "out.safetensors", "--batch-size", 5, "--json"
    )
    assert answer.code == 0, answer.err
    outputs = Outputs.load(tmp_path / "out.safetensors")
    assert (len(outputs), outputs.n_classes) == (12, 3)
    assert outputs.layers[-1] == "logits"
    assert outputs.features["logits"].dtype == np.float16
    assert answer.json["metadata"]["classifier"] == "mymodels:tiny"


def test_a_corruption_is_applied_and_written_into_the_metadata(densecal, images, tmp_path):
    densecal("extract", "mymodels:tiny", "--data", images, "-o", "clean.safetensors")
    answer = densecal(
        "extract",
        "mymodels:tiny",
        "--data",
        images,
        "-o",
        "fog.safetensors",
        "--corruption",
        "contrast",
        "--severity",
        5,
    )
    assert answer.code == 0, answer.err
    clean, fog = Outputs.load(tmp_path / "clean.safetensors"), Outputs.load(tmp_path / "fog.safetensors")
    assert fog.metadata["condition"] == "contrast"
    assert fog.metadata["severity"] == "5"
    assert not np.allclose(clean.logits, fog.logits)


def test_a_published_corrupted_set_is_not_taken_for_clean_data(densecal, images, tmp_path, monkeypatch):
    monkeypatch.setattr(CIFAR10, "test_size", 4)
    (tmp_path / "CIFAR-10-C").mkdir()
    np.save(tmp_path / "CIFAR-10-C" / "fog.npy", np.zeros((20, 32, 32, 3), np.uint8))
    np.save(tmp_path / "CIFAR-10-C" / "labels.npy", np.arange(20, dtype=np.uint8) % 10)
    for limit in ((), ("--limit", 2)):
        answer = densecal(
            "extract", "mymodels:tiny", "--data", "cifar10-c:fog/3", "--root", tmp_path, "-o", "fog.npz", *limit
        )
        assert answer.code == 0, answer.err
        assert str(read_conditions([tmp_path / "fog.npz"])[0]) == "fog, severity 3"


def test_perturbed_and_limited_images_can_be_extracted(densecal, images, tmp_path):
    answer = densecal("extract", "mymodels:tiny", "--data", images, "-o", "p.safetensors", "--perturb", "--limit", 5)
    assert answer.code == 0, answer.err
    outputs = Outputs.load(tmp_path / "p.safetensors")
    assert len(outputs) == 5
    assert outputs.metadata["condition"] == "perturbed"


def test_weights_are_loaded_from_safetensors_and_state_dicts(densecal, images, tmp_path, monkeypatch):
    from safetensors.torch import save_file

    monkeypatch.chdir(tmp_path)
    model, _ = build_model("mymodels:tiny", 3)
    state = {name: value + 1 for name, value in model.state_dict().items()}
    save_file(state, tmp_path / "w.safetensors")
    torch.save({"state_dict": {f"module.{name}": value for name, value in state.items()}}, tmp_path / "w.pt")
    for file in ("w.safetensors", "w.pt"):
        loaded, _ = build_model("mymodels:tiny", 3, weights=tmp_path / file)
        for name, value in loaded.state_dict().items():
            assert torch.equal(value, state[name])


def test_a_torchvision_model_gets_the_data_sets_number_of_classes():
    pytest.importorskip("torchvision")
    model, _ = build_model("torchvision:resnet18", 7)
    assert model.fc.out_features == 7


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("resnet", "Unknown model 'resnet'"),
        ("torchvision:resnet188", "torchvision has no model"),
        ("nowhere:model", "cannot be imported"),
        ("mymodels:large", "has no 'large'"),
        ("mymodels:text", "must return a torch.nn.Module, got str"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused_in_one_line(densecal, complains, images, tmp_path, model, words):
    answer = densecal("extract", model, "--data", images, "-o", "out.safetensors")
    assert answer.code == (2 if "model" in words else 1)
    assert complains(answer)
    assert words in answer.err
    assert not (tmp_path / "out.safetensors").exists()


def test_weights_of_another_model_are_refused(densecal, complains, images, tmp_path):
    torch.save({"weight": torch.zeros(2)}, tmp_path / "w.pt")
    answer = densecal("extract", "mymodels:tiny", "--data", images, "--weights", "w.pt", "-o", "out.safetensors")
    assert answer.code == 1
    assert complains(answer)
    assert "do not match the model" in answer.err


def test_an_untrained_model_is_refused_unless_it_is_wanted(densecal, complains, images, tmp_path):
    pytest.importorskip("torchvision")
    command = ("extract", "torchvision:squeezenet1_1", "--data", images, "-o", "out.safetensors")
    answer = densecal(*command)
    assert answer.code == 2
    assert complains(answer)
    assert "has no trained weights: pass --weights FILE or --pretrained, or --random-weights" in answer.err
    assert densecal(*command, "--random-weights", "--image-size", 40).code == 0


def test_a_model_of_other_classes_is_refused_unless_the_images_are_out_of_domain(densecal, complains, images, tmp_path):
    (tmp_path / "othermodels.py").write_text(MODEL + "\n\ndef ten():\n    return tiny(10)\n")
    command = ("extract", "othermodels:ten", "--data", images, "-o", "out.safetensors")
    answer = densecal(*command)
    assert answer.code == 1
    assert complains(answer)
    assert "othermodels:ten has 10 classes, but images has 3: its labels are not those of the model" in answer.err
    assert not (tmp_path / "out.safetensors").exists()
    answer = densecal(*command, "--ood")
    assert answer.code == 0, answer.err
    assert Outputs.load(tmp_path / "out.safetensors").labels is None
    assert read_conditions([tmp_path / "out.safetensors"])[0].out_of_domain


def test_a_data_set_that_is_not_there_says_what_to_get(densecal, complains):
    answer = densecal(
        "extract", "torchvision:resnet18", "--data", "cifar10", "--root", "nowhere", "-o", "out.safetensors"
    )
    assert answer.code == 1
    assert complains(answer)
    assert "cifar-10" in answer.err


def test_corrupting_and_perturbing_exclude_each_other(densecal, complains, images):
    answer = densecal(
        "extract", "mymodels:tiny", "--data", images, "-o", "o.safetensors", "--perturb", "--corruption", "fog"
    )
    assert answer.code == 2
    assert complains(answer)


def extracted(densecal, *options):
    return densecal("extract", "mymodels:tiny", "--data", "folder:images", "-o", "o.safetensors", *options)


def test_the_normalisation_in_use_is_printed_and_kept_in_the_metadata_of_the_file(densecal, images, tmp_path):
    answer = extracted(densecal)
    assert "mean 0.485, 0.456, 0.406; std 0.229, 0.224, 0.225" in answer.out
    assert "--mean" in answer.out
    metadata = Outputs.load(tmp_path / "o.safetensors").metadata
    assert metadata["pixel_mean"] == "0.485, 0.456, 0.406"
    assert metadata["pixel_std"] == "0.229, 0.224, 0.225"


def test_a_models_own_normalisation_replaces_the_data_sets(densecal, images, tmp_path):
    answer = extracted(densecal, "--mean", "0,0,0", "--std", "1,1,1")
    assert answer.code == 0, answer.err
    assert "mean 0, 0, 0; std 1, 1, 1" in answer.out
    found = Outputs.load(tmp_path / "o.safetensors")
    model, _ = build_model("mymodels:tiny", 3)
    files = sorted((tmp_path / "images").rglob("*.png"))
    pixels = np.stack([np.asarray(PIL.open(file)) for file in files]).transpose(0, 3, 1, 2) / np.float32(255)
    with torch.no_grad():
        expected = model.eval()(torch.from_numpy(pixels)).numpy()
    np.testing.assert_allclose(found.logits, expected, atol=1e-5)
    assert found.metadata["pixel_mean"] == "0, 0, 0"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--mean", "0.5,0.5,0.5"), "--mean and --std must be given together"),
        (("--mean", "0.5", "--std", "1,1,1"), "--mean must be three numbers"),
        (("--mean", "a,b,c", "--std", "1,1,1"), "--mean must be three numbers"),
        (("--mean", "0,0,0", "--std", "1,0,1"), "--std must be positive"),
    ],
)
def test_a_normalisation_that_cannot_be_meant_is_refused(densecal, complains, images, options, words):
    answer = extracted(densecal, *options)
    assert answer.code == 2
    assert complains(answer)
    assert words in answer.err


def test_the_help_says_which_normalisation_is_applied(densecal):
    text = " ".join(densecal("extract", "--help").out.replace("│", " ").split())
    assert "--mean" in text
    assert "--std" in text
    assert "0,0,0" in text


def test_a_pretrained_timm_model_brings_its_own_normalisation(monkeypatch):
    timm = pytest.importorskip("timm")
    made = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained, **options: made(name, **options))
    _, pixels = build_model("timm:vit_tiny_patch16_224", 10, pretrained=True)
    assert pixels == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert build_model("timm:vit_tiny_patch16_224", 10)[1] is None


def test_a_name_that_outputs_are_not_written_under_is_refused_before_the_work(densecal, complains, images):
    answer = densecal("extract", "mymodels:tiny", "--data", images, "-o", "out.csv")
    assert answer.code == 1
    assert complains(answer)
    assert ".safetensors or .npz" in answer.err


def test_the_processes_of_torchrun_share_a_folder_of_files(densecal, images, tmp_path, monkeypatch):
    command = ("extract", "mymodels:tiny", "--data", images, "--batch-size", 4, "--json")
    assert densecal(*command, "-o", "whole.safetensors").code == 0
    monkeypatch.setenv("WORLD_SIZE", "2")
    answers = []
    for rank in (1, 0):
        monkeypatch.setenv("RANK", str(rank))
        answers.append(densecal(*command, "-o", "parts", "--shard-size", 4))
        assert answers[-1].code == 0, answers[-1].err
    assert answers[0].out == "" and answers[1].json["n_samples"] == 12  # the last to finish has the summary
    parts, whole = Outputs.open(tmp_path / "parts"), Outputs.load(tmp_path / "whole.safetensors")
    assert [path.name for path in parts.paths] == [f"parts-{number:05}-of-00003.safetensors" for number in range(3)]
    np.testing.assert_array_equal(parts.load().logits, whole.logits)
    np.testing.assert_array_equal(parts.labels, whole.labels)
    (condition,) = read_conditions([tmp_path / "parts"])
    assert len(condition.outputs) == 12
    refused = densecal(*command, "-o", "parts.safetensors")
    assert (refused.code, "--output must be a folder" in refused.err) == (2, True)


def test_options_of_ray_are_refused_without_it(densecal, images):
    for options, said in ((("--workers", 2), "for --engine ray"), (("--engine", "dask"), "local or ray")):
        answer = densecal("extract", "mymodels:tiny", "--data", images, "-o", "out.npz", *options)
        assert (answer.code, said in answer.err) == (2, True), answer.err
