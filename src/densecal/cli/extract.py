"""``densecal extract``: run a PyTorch classifier over a data set and write its outputs to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from densecal.cli.app import file_and_size, print_json, print_values
from densecal.cli.inputs import RAY, DataRoot, EngineOptions, Json, UsageError, check_outputs, with_options
from densecal.errors import require

if TYPE_CHECKING:
    from densecal.cli.extraction import Pixels

UNTRAINED = ("torchvision:", "timm:")
"""Models with random weights unless weights are loaded. A user's own model may load its weights itself."""
PIXEL_METADATA = ("pixel_mean", "pixel_std")


Model = Annotated[str, typer.Argument(help="torchvision:NAME, timm:NAME, or your own as package.module:callable.")]
Data = Annotated[
    str, typer.Option(help="cifar10, cifar100, imagenet, objectnet, folder:PATH, or a published set: cifar10-c:fog/3.")
]
Layers = Annotated[
    str, typer.Option(help="Layers whose features are stored: auto, paper, all, logits, or comma-separated names.")
]
RandomWeights = Annotated[bool, typer.Option("--random-weights", help="Use an untrained torchvision or timm model.")]
Perturb = Annotated[
    bool, typer.Option("--perturb", help="Apply generic perturbations to the images, for `densecal fit --shifted`.")
]
OutOfDomain = Annotated[
    bool,
    typer.Option(
        "--ood",
        help="The images belong to none of the model's classes: store no labels, for `densecal evaluate --ood`.",
    ),
]
Mean = Annotated[
    str | None,
    typer.Option(
        help="Mean to subtract from pixels in [0, 1], such as 0.5,0.5,0.5. The default is the mean of the pretrained "
        "timm model or, for other models, the usual mean of the data set. Set it if your model was trained with "
        "another mean. For no normalisation, use --mean 0,0,0 --std 1,1,1.",
        show_default=False,
    ),
]
Std = Annotated[
    str | None,
    typer.Option(help="Standard deviation to divide by, such as 1,1,1; requires --mean.", show_default=False),
]
Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        help="The file to write, .safetensors or .npz. With --shard-size, --engine ray or torchrun: a folder of "
        "shards, in which existing shards are kept.",
    ),
]
ShardSize = Annotated[
    int | None,
    typer.Option(help="Write shards of this many samples to a folder.", min=1, show_default="8192 if sharded"),
]


@with_options
def extract(
    model: Model,
    data: Data,
    output: Output,
    run_on: EngineOptions,
    weights: Annotated[Path | None, typer.Option(help="Weights: a .safetensors file or a state_dict.")] = None,
    pretrained: Annotated[bool, typer.Option("--pretrained", help="Use the library's pretrained weights.")] = False,
    random_weights: RandomWeights = False,
    root: DataRoot = None,
    split: Annotated[str | None, typer.Option(help="Split of the data set: train, val or test.")] = None,
    layers: Layers = "auto",
    corruption: Annotated[str | None, typer.Option(help="Corruption of the images, such as fog.")] = None,
    severity: Annotated[int, typer.Option(help="Severity of the corruption, 1 to 5.", min=1, max=5)] = 3,
    perturb: Perturb = False,
    ood: OutOfDomain = False,
    limit: Annotated[int | None, typer.Option(help="Use only this many images, from the start.", min=1)] = None,
    image_size: Annotated[int | None, typer.Option(help="Resize and crop image files to this size.", min=8)] = None,
    mean: Mean = None,
    std: Std = None,
    batch_size: Annotated[int, typer.Option(help="Images per batch.", min=1)] = 128,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...; auto uses a GPU if available.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the corruption or perturbation.")] = 0,
    shard_size: ShardSize = None,
    as_json: Json = False,
) -> None:
    """Run a PyTorch classifier over a data set and write its logits, labels and layer features."""
    require("torch", "torch", "densecal extract")
    if corruption and perturb:
        raise UsageError("--corruption (for test sets) and --perturb (for fits) cannot be used together.")
    from densecal.cli.extraction import Extractor, absolute_paths, build_model, check_output, describe_data, open_data
    from densecal.shift import Perturbed, Shifted

    is_sharded = check_output(output, is_sharded=shard_size is not None or run_on.engine == RAY)
    if not is_sharded:
        check_outputs({"--output": output}, {"--weights": [] if weights is None else [weights]})
    given = _parse_pixels(mean, std)
    data, root = absolute_paths(data, root) if run_on.engine == RAY else (data, root)
    dataset = open_data(data, root, split, image_size)
    if corruption is not None or perturb:
        dataset = Perturbed(dataset, seed) if corruption is None else Shifted(dataset, corruption, severity, seed)
    metadata = {"classifier": model, **describe_data(dataset)}
    if limit is not None:
        dataset = dataset.subset(range(min(limit, len(dataset))))
    network, own = build_model(model, dataset.n_classes, weights=weights, pretrained=pretrained)
    _check_trained(model, has_weights=weights is not None or pretrained or random_weights)
    pixels = given or own or (dataset.mean, dataset.std)
    origin = "as given" if given else "the model's" if own else f"usual for {dataset.name}; change: --mean, --std"
    metadata |= {name: ", ".join(f"{one:g}" for one in pixels[place]) for place, name in enumerate(PIXEL_METADATA)}
    if ood:
        metadata["role"] = "ood"
    extractor = Extractor(network, pixels, layers, batch_size, device, with_labels=not ood)
    if not ood:
        extractor.check_classes(model, dataset)
    with run_on.open() as on_ray:
        if is_sharded:
            is_complete = extractor.write_shards(dataset, output, metadata, shard_size, on_ray, run_on.workers)
        else:
            is_complete = extractor.write(dataset, output, metadata)
    if is_complete:
        _print_summary(output, origin, as_json=as_json)


def _check_trained(model: str, *, has_weights: bool) -> None:
    if model.startswith(UNTRAINED) and not has_weights:
        raise UsageError(
            f"{model} has no trained weights: pass --weights FILE or --pretrained, or --random-weights to try an "
            "untrained model."
        )


def _parse_pixels(mean: str | None, std: str | None) -> Pixels | None:
    if mean is None and std is None:
        return None
    if mean is None or std is None:
        raise UsageError("--mean and --std must be given together. For no normalisation: --mean 0,0,0 --std 1,1,1.")
    pixels = _parse_colours("--mean", mean), _parse_colours("--std", std)
    if min(pixels[1]) <= 0:
        raise UsageError(f"--std must be positive, got {std!r}.")
    return pixels


def _parse_colours(option: str, text: str) -> tuple[float, float, float]:
    try:
        red, green, blue = (float(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"{option} must be three numbers such as 0.5,0.5,0.5, got {text!r}.") from None
    return red, green, blue


def _print_summary(output: Path, origin: str, *, as_json: bool) -> None:
    from densecal.arrays import softmax
    from densecal.display import percent, points
    from densecal.metrics import MetricState
    from densecal.outputs import Outputs

    outputs, correct, ece = Outputs.open(output), None, None
    if outputs.has_labels:
        state = MetricState(classwise=False)
        for batch in outputs.batches():
            state.update(softmax(batch.checked_logits()), batch.labels)
        found = state.compute(kde=False)
        correct, ece = found.accuracy, found.ece
    widths = {layer: int(array.shape[1]) for layer, array in outputs[:1].features.items()}
    metadata = outputs.metadata
    if as_json:
        numbers = {"n_samples": len(outputs), "layers": widths, "accuracy": correct, "ece": ece}
        print_json({"output": output, **numbers, "metadata": metadata})
        return
    values = {
        "samples": f"{len(outputs):,}",
        "normalisation": f"mean {metadata['pixel_mean']}; std {metadata['pixel_std']} ({origin})",
        **({} if correct is None else {"accuracy": percent(correct, 1)}),
        **({} if ece is None else {"uncalibrated ECE": f"{points(ece)} percentage points"}),
        "layers": ", ".join(f"{layer} ({width})" for layer, width in widths.items()),
        "written to": file_and_size(output),
    }
    print_values("Extracted", values)
