from __future__ import annotations

import numpy as np
import pytest

from densecal import Outputs
from densecal.cli.models import build_model

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
    assert (len(outputs), outputs.num_classes) == (12, 3)
    assert outputs.layers[-1] == "logits"
    assert outputs.features["logits"].dtype == np.float16
    assert answer.json["facts"]["classifier"] == "mymodels:tiny"


def test_a_corruption_is_applied_and_written_into_the_facts(densecal, images, tmp_path):
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
    assert fog.facts["condition"] == "contrast"
    assert fog.facts["severity"] == "5"
    assert not np.allclose(clean.logits, fog.logits)


def test_perturbed_and_limited_images_can_be_extracted(densecal, images, tmp_path):
    answer = densecal("extract", "mymodels:tiny", "--data", images, "-o", "p.safetensors", "--perturb", "--limit", 5)
    assert answer.code == 0, answer.err
    outputs = Outputs.load(tmp_path / "p.safetensors")
    assert len(outputs) == 5
    assert outputs.facts["condition"] == "perturbed"


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


def test_a_model_of_the_paper_comes_with_its_normalisation():
    model, pixels = build_model("c10-resnet18", 10)
    assert pixels[0] == pytest.approx((0.4914, 0.4822, 0.4465))
    assert model.fc.out_features == 10


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("resnet", "There is no model 'resnet'"),
        ("torchvision:resnet188", "torchvision has no model"),
        ("nowhere:model", "cannot be imported"),
        ("mymodels:large", "has no 'large'"),
        ("mymodels:text", "must return a torch.nn.Module, got str"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused_in_one_line(densecal, complains, images, tmp_path, model, words):
    answer = densecal("extract", model, "--data", images, "-o", "out.safetensors")
    assert answer.code == 1
    assert complains(answer)
    assert words in answer.err
    assert not (tmp_path / "out.safetensors").exists()


def test_weights_of_another_model_are_refused(densecal, complains, images, tmp_path):
    torch.save({"weight": torch.zeros(2)}, tmp_path / "w.pt")
    answer = densecal("extract", "mymodels:tiny", "--data", images, "--weights", "w.pt", "-o", "out.safetensors")
    assert answer.code == 1
    assert complains(answer)
    assert "not this model's" in answer.err


def test_a_data_set_that_is_not_there_says_what_to_get(densecal, complains):
    answer = densecal("extract", "c10-resnet18", "--data", "cifar10", "--root", "nowhere", "-o", "out.safetensors")
    assert answer.code == 1
    assert complains(answer)
    assert "cifar-10" in answer.err


def test_corrupting_and_perturbing_exclude_each_other(densecal, complains, images):
    answer = densecal(
        "extract", "mymodels:tiny", "--data", images, "-o", "o.safetensors", "--perturb", "--corruption", "fog"
    )
    assert answer.code == 1
    assert complains(answer)
