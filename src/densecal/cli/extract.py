"""``densecal extract``: what a PyTorch classifier says about a data set, written to a file of outputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densecal.cli.screen import Json, facts_table, print_json, screen

if TYPE_CHECKING:
    from densecal.cli.models import Pixels
    from densecal.shift import Dataset

CHOICES = ("auto", "paper", "all", "logits")
MEAN_FACT, STD_FACT = "pixel_mean", "pixel_std"


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(
        epilog="Example: densecal extract torchvision:resnet18 --weights model.pt --data cifar10 -o test.safetensors"
    )(extract)


def extract(
    model: Annotated[
        str,
        typer.Argument(
            help="torchvision:NAME, timm:NAME, a name of the paper (c10-resnet18), or package.module:callable."
        ),
    ],
    data: Annotated[
        str,
        typer.Option(help="cifar10, cifar100, imagenet, objectnet, folder:PATH, or a published set: cifar10-c:fog/3."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the outputs.")],
    weights: Annotated[
        Path | None, typer.Option(help="The model's weights: a .safetensors file or a state_dict.")
    ] = None,
    pretrained: Annotated[bool, typer.Option("--pretrained", help="Take the library's own weights.")] = False,
    root: Annotated[Path | None, typer.Option(help="Where the data lie (else $DENSECAL_DATA, else data).")] = None,
    split: Annotated[str | None, typer.Option(help="Which split: train, val, test.")] = None,
    layers: Annotated[
        str,
        typer.Option(
            help="auto, paper, all, logits, or names separated by commas: the layers whose features are kept."
        ),
    ] = "auto",
    corruption: Annotated[str | None, typer.Option(help="Corrupt the images: fog, gaussian_noise, ...")] = None,
    severity: Annotated[int, typer.Option(help="How strongly, 1 to 5.", min=1, max=5)] = 3,
    perturb: Annotated[
        bool, typer.Option("--perturb", help="Perturb the images generically, for `densecal fit --shifted`.")
    ] = False,
    limit: Annotated[int | None, typer.Option(help="Only the first so many images.", min=1)] = None,
    image_size: Annotated[int | None, typer.Option(help="Resize and crop image files to this size.", min=8)] = None,
    mean: Annotated[
        str | None,
        typer.Option(
            help="What the model subtracts from pixels in [0, 1], three numbers as 0.5,0.5,0.5. Without it the paper's "
            "and timm's pretrained models bring their own, any other takes the data set's usual constants: give what "
            "yours was trained with. For none: --mean 0,0,0 --std 1,1,1.",
            show_default=False,
        ),
    ] = None,
    std: Annotated[
        str | None, typer.Option(help="What it divides by then, three numbers; goes with --mean.", show_default=False)
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Images a batch.", min=1)] = 128,
    device: Annotated[
        str, typer.Option(help="Where to run: cpu, cuda, cuda:1, ...; auto takes a GPU if there is one.")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the corruption or perturbation.")] = 0,
    as_json: Json = False,
) -> None:
    """Run a PyTorch classifier over a data set and keep logits, labels and layer features."""
    _need_torch()
    if corruption and perturb:
        raise ValueError("--corruption and --perturb exclude each other: one tests, the other fits.")
    from densecal.io.output_files import check_writable

    check_writable(output)
    given = _given_pixels(mean, std)
    dataset = _open_data(data, root, split, corruption, severity, perturb, image_size, seed)
    metadata = {"classifier": model, **_facts(dataset)}
    if limit is not None:
        dataset = dataset.subset(range(min(limit, len(dataset))))
    from densecal.cli.models import build_model

    network, own = build_model(model, dataset.n_classes, weights=weights, pretrained=pretrained)
    pixels = given or own or (dataset.mean, dataset.std)
    whose = "as given" if given else "the model's" if own else f"usual for {dataset.name}; --mean, --std give others"
    metadata |= {MEAN_FACT: _numbers(pixels[0]), STD_FACT: _numbers(pixels[1])}
    _run(network, dataset, pixels, _choice(layers), batch_size, device, metadata, output)
    _tell(output, whose, as_json=as_json)


def _need_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ImportError('densecal extract needs PyTorch: pip install "densecal[torch]".') from None


def _given_pixels(mean: str | None, std: str | None) -> Pixels | None:
    if mean is None and std is None:
        return None
    if mean is None or std is None:
        raise ValueError("--mean and --std go together: give both, or neither. For none: --mean 0,0,0 --std 1,1,1.")
    found = _three("--mean", mean), _three("--std", std)
    if min(found[1]) <= 0:
        raise ValueError(f"--std must be above 0, since pixels are divided by it, got {std!r}.")
    return found


def _three(option: str, text: str) -> tuple[float, float, float]:
    try:
        red, green, blue = (float(word) for word in text.split(","))
    except ValueError:
        raise ValueError(f"{option} must be three numbers, as 0.5,0.5,0.5, got {text!r}.") from None
    return red, green, blue


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _choice(layers: str) -> Any:
    return layers if layers in CHOICES else [name.strip() for name in layers.split(",")]


def _open_data(
    data: str,
    root: Path | None,
    split: str | None,
    corruption: str | None,
    severity: int,
    perturb: bool,
    image_size: int | None,
    seed: int,
) -> Dataset:
    from densecal.shift import Perturbed, ResizeCrop, Shifted, open_dataset

    options: dict[str, Any] = {}
    if image_size is not None:
        options["transform"] = ResizeCrop(round(image_size * 256 / 224), image_size)
    dataset = open_dataset(data, root=root, split=split, **options)
    if corruption is not None:
        return Shifted(dataset, corruption, severity, seed)
    return Perturbed(dataset, seed) if perturb else dataset


def _facts(dataset: Dataset) -> dict[str, str]:
    """Say what the data are and what happened to them; a published corrupted set knows it too."""
    from densecal.shift import Perturbed

    condition = "perturbed" if isinstance(dataset, Perturbed) else getattr(dataset, "corruption", "clean")
    metadata = {"data": dataset.name, "condition": condition, "severity": str(getattr(dataset, "severity", 0))}
    more = {"split": dataset.split, "seed": getattr(dataset, "seed", "")}
    return metadata | {name: str(value) for name, value in more.items() if value != ""}


def _run(
    network: Any,
    dataset: Dataset,
    pixels: Pixels,
    layers: Any,
    batch_size: int,
    device: str,
    metadata: dict[str, str],
    output: Path,
) -> None:
    import torch
    from torch.utils.data import DataLoader

    from densecal.outputs import Outputs
    from densecal.torch import extract as run

    loader = DataLoader(dataset.as_torch(mean=pixels[0], std=pixels[1]), batch_size=batch_size)
    where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    found = run(network, loader, layers, device=where, feature_dtype=torch.float16)
    Outputs(found.logits, found.labels, found.features, metadata=metadata).save(output)


def _tell(output: Path, whose: str, *, as_json: bool) -> None:
    from densecal.arrays import softmax
    from densecal.metrics import accuracy, expected_calibration_error
    from densecal.outputs import Outputs

    outputs = Outputs.load(output)
    probabilities = softmax(outputs.logits.copy())
    right, error = accuracy(probabilities, outputs.labels), expected_calibration_error(probabilities, outputs.labels)
    widths = {layer: int(array.shape[1]) for layer, array in outputs.features.items()}
    if as_json:
        told = {"output": output, "samples": len(outputs), "layers": widths, "accuracy": right, "ece": error}
        print_json({**told, "metadata": outputs.metadata})
        return
    metadata = {
        "samples": f"{len(outputs):,}",
        "normalisation": f"mean {outputs.metadata[MEAN_FACT]}; std {outputs.metadata[STD_FACT]} ({whose})",
        "accuracy": f"{100 * right:.1f} %",
        "uncalibrated ECE": f"{100 * error:.1f} points",
        "layers": ", ".join(f"{layer} ({width})" for layer, width in widths.items()),
        "written to": f"{output} ({output.stat().st_size / 1e6:.1f} MB)",
    }
    screen().print(facts_table("Extracted", metadata))
