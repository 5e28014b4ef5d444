"""``densecal extract``: run a PyTorch classifier over a data set and write its outputs to a file."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densecal.cli.screen import DataRoot, Json, file_and_size, print_json, print_values

if TYPE_CHECKING:
    from torch import nn

    from densecal.outputs import Outputs
    from densecal.shift import Dataset

Pixels = tuple[tuple[float, float, float], tuple[float, float, float]]
LAYER_CHOICES = ("auto", "paper", "all", "logits")
RESIZE_BEFORE_CROP = 256 / 224
"""Size of the resized image relative to the crop, as is usual for ImageNet."""


Model = Annotated[str, typer.Argument(help="torchvision:NAME, timm:NAME, or your own as package.module:callable.")]
Data = Annotated[
    str, typer.Option(help="cifar10, cifar100, imagenet, objectnet, folder:PATH, or a published set: cifar10-c:fog/3.")
]
Layers = Annotated[
    str, typer.Option(help="Layers whose features are stored: auto, paper, all, logits, or comma-separated names.")
]
Perturb = Annotated[
    bool, typer.Option("--perturb", help="Apply generic perturbations to the images, for `densecal fit --shifted`.")
]
Mean = Annotated[
    str | None,
    typer.Option(
        help="Mean to subtract from pixels in [0, 1], such as 0.5,0.5,0.5. The default is that of the pretrained timm "
        "model, or else the usual mean of the data set. Set it if your model was trained with another one. For no "
        "normalisation use --mean 0,0,0 --std 1,1,1.",
        show_default=False,
    ),
]
Std = Annotated[
    str | None, typer.Option(help="Standard deviation to divide by, such as 1,1,1; needs --mean.", show_default=False)
]


def extract(
    model: Model,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file of outputs: .safetensors or .npz.")],
    weights: Annotated[Path | None, typer.Option(help="The weights: a .safetensors file or a state_dict.")] = None,
    pretrained: Annotated[bool, typer.Option("--pretrained", help="Use the library's pretrained weights.")] = False,
    root: DataRoot = None,
    split: Annotated[str | None, typer.Option(help="The split of the data: train, val, test.")] = None,
    layers: Layers = "auto",
    corruption: Annotated[str | None, typer.Option(help="Corrupt the images: fog, gaussian_noise, ...")] = None,
    severity: Annotated[int, typer.Option(help="Severity of the corruption, 1 to 5.", min=1, max=5)] = 3,
    perturb: Perturb = False,
    limit: Annotated[int | None, typer.Option(help="Number of images to use, from the first.", min=1)] = None,
    image_size: Annotated[int | None, typer.Option(help="Resize and crop image files to this size.", min=8)] = None,
    mean: Mean = None,
    std: Std = None,
    batch_size: Annotated[int, typer.Option(help="Images per batch.", min=1)] = 128,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...; auto uses a GPU if available.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the corruption or perturbation.")] = 0,
    as_json: Json = False,
) -> None:
    """Run a PyTorch classifier over a data set and write its logits, labels and layer features."""
    _require_torch()
    if corruption and perturb:
        raise ValueError("--corruption (for test sets) and --perturb (for fits) cannot be used together.")
    from densecal.io.output_files import check_writable
    from densecal.outputs import Outputs
    from densecal.shift import Perturbed, ResizeCrop, Shifted, open_dataset

    check_writable(output)
    given = _parse_pixels(mean, std)
    options = {}
    if image_size is not None:
        options["transform"] = ResizeCrop(round(image_size * RESIZE_BEFORE_CROP), image_size)
    dataset: Dataset = open_dataset(data, root=root, split=split, **options)
    if corruption is not None:
        dataset = Shifted(dataset, corruption, severity, seed)
    elif perturb:
        dataset = Perturbed(dataset, seed)
    metadata = {"classifier": model, **_describe_data(dataset)}
    if limit is not None:
        dataset = dataset.subset(range(min(limit, len(dataset))))
    network, own = build_model(model, dataset.n_classes, weights=weights, pretrained=pretrained)
    pixels = given or own or (dataset.mean, dataset.std)
    origin = "as given" if given else "the model's" if own else f"usual for {dataset.name}; change: --mean, --std"
    metadata |= {"pixel_mean": _join_numbers(pixels[0]), "pixel_std": _join_numbers(pixels[1])}
    outputs = _run(network, dataset, pixels, layers=layers, batch_size=batch_size, device=device)
    Outputs(outputs.logits, outputs.labels, outputs.features, metadata=metadata).save(output)
    _print_summary(output, origin, as_json=as_json)


def _require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ImportError('densecal extract needs PyTorch: pip install "densecal[torch]".') from None


def _parse_pixels(mean: str | None, std: str | None) -> Pixels | None:
    if mean is None and std is None:
        return None
    if mean is None or std is None:
        raise ValueError("--mean and --std must be given together. For no normalisation: --mean 0,0,0 --std 1,1,1.")
    pixels = _parse_colours("--mean", mean), _parse_colours("--std", std)
    if min(pixels[1]) <= 0:
        raise ValueError(f"--std must be positive, got {std!r}.")
    return pixels


def _parse_colours(option: str, text: str) -> tuple[float, float, float]:
    try:
        red, green, blue = (float(word) for word in text.split(","))
    except ValueError:
        raise ValueError(f"{option} must be three numbers such as 0.5,0.5,0.5, got {text!r}.") from None
    return red, green, blue


def _join_numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _describe_data(dataset: Dataset) -> dict[str, str]:
    """Return the metadata of a data set: its name, its corruption and severity, its split and seed."""
    from densecal.shift import Perturbed

    condition = "perturbed" if isinstance(dataset, Perturbed) else getattr(dataset, "corruption", "clean")
    metadata = {"data": dataset.name, "condition": condition, "severity": getattr(dataset, "severity", 0)}
    metadata |= {"split": dataset.split, "seed": getattr(dataset, "seed", "")}
    return {name: str(value) for name, value in metadata.items() if value != ""}


def _run(network: Any, dataset: Dataset, pixels: Pixels, *, layers: str, batch_size: int, device: str) -> Outputs:
    import torch
    from torch.utils.data import DataLoader

    from densecal.torch import extract as extract_outputs

    mean, std = pixels
    loader = DataLoader(dataset.as_torch(mean=mean, std=std), batch_size=batch_size)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    wanted = layers if layers in LAYER_CHOICES else [name.strip() for name in layers.split(",")]
    outputs: Outputs = extract_outputs(network, loader, wanted, device=device, feature_dtype=torch.float16)
    return outputs


def _print_summary(output: Path, origin: str, *, as_json: bool) -> None:
    from densecal.arrays import softmax
    from densecal.metrics import accuracy, expected_calibration_error
    from densecal.outputs import Outputs
    from densecal.report.text import percent, points

    outputs = Outputs.load(output)
    probabilities = softmax(outputs.checked_logits())
    correct = accuracy(probabilities, outputs.labels)
    ece = expected_calibration_error(probabilities, outputs.labels)
    widths = {layer: int(array.shape[1]) for layer, array in outputs.features.items()}
    metadata = outputs.metadata
    if as_json:
        numbers = {"samples": len(outputs), "layers": widths, "accuracy": correct, "ece": ece}
        print_json({"output": output, **numbers, "metadata": metadata})
        return
    values = {
        "samples": f"{len(outputs):,}",
        "normalisation": f"mean {metadata['pixel_mean']}; std {metadata['pixel_std']} ({origin})",
        "accuracy": percent(correct, 1),
        "uncalibrated ECE": f"{points(ece)} percentage points",
        "layers": ", ".join(f"{layer} ({width})" for layer, width in widths.items()),
        "written to": file_and_size(output),
    }
    print_values("Extracted", values)


def build_model(
    spec: str, num_classes: int, *, weights: Path | None = None, pretrained: bool = False
) -> tuple[nn.Module, Pixels | None]:
    """Return the model named by ``spec`` and, if the library provides them, the mean and std of its inputs."""
    library, _, name = spec.partition(":")
    pixels: Pixels | None = None
    if not name:
        raise ValueError(f"Unknown model {spec!r}. Use torchvision:NAME, timm:NAME or package.module:callable.")
    if library == "torchvision":
        model = _from_torchvision(name, num_classes, pretrained)
    elif library == "timm":
        model, pixels = _from_timm(name, num_classes, pretrained)
    else:
        model = _from_user(library, name, num_classes)
    if weights is not None:
        load_weights(model, weights)
    return model, pixels


def _from_torchvision(name: str, num_classes: int, pretrained: bool) -> nn.Module:
    from torchvision import models

    if name not in models.list_models():
        raise ValueError(f"torchvision has no model {name!r}. It has {', '.join(models.list_models()[:6])}, ...")
    # Pretrained weights fix the number of classes.
    options: dict[str, Any] = {"weights": "DEFAULT"} if pretrained else {"weights": None, "num_classes": num_classes}
    model: nn.Module = models.get_model(name, **options)
    return model


def _from_timm(name: str, num_classes: int, pretrained: bool) -> tuple[nn.Module, Pixels | None]:
    import timm

    options: dict[str, Any] = {} if pretrained else {"num_classes": num_classes}
    try:
        model: nn.Module = timm.create_model(name, pretrained=pretrained, **options)
    except RuntimeError as error:
        raise ValueError(f"timm has no model {name!r}: {error}") from error
    if not pretrained:
        return model, None
    # Not every pretrained model was trained with ImageNet's usual normalisation.
    published: Any = model.pretrained_cfg
    return model, (tuple(published["mean"]), tuple(published["std"]))


def _from_user(module: str, name: str, num_classes: int) -> nn.Module:
    from torch import nn

    # Modules in the current folder can be imported, as with `python -m`.
    sys.path.insert(0, str(Path.cwd()))
    try:
        made: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ValueError(f"The module {module!r} of the model cannot be imported: {error}") from error
    except AttributeError:
        raise ValueError(f"The module {module!r} has no {name!r}.") from None
    finally:
        sys.path.pop(0)
    if isinstance(made, nn.Module):
        return made
    takes = inspect.signature(made).parameters
    model = made(num_classes=num_classes) if "num_classes" in takes else made()
    if not isinstance(model, nn.Module):
        raise TypeError(f"{module}:{name} must return a torch.nn.Module, got {type(model).__name__}.")
    return model


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a state_dict into a model; the prefix that `DataParallel` adds to names is removed."""
    import torch

    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: --weights must name a file.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{path} cannot be read as weights (code is not unpickled): {error}") from error
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    state = {name.removeprefix("module."): value for name, value in state.items()}
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        lines = " ".join(str(error).split())
        raise ValueError(f"The weights in {path} do not match the model: {lines[:300]}") from error
