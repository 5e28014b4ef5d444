"""The densecal command and its subcommands, one per file.

They import slow modules inside their functions to keep ``densecal --help`` fast.
"""

from __future__ import annotations

from densecal.cli import apply, demo, evaluate, extract, fit, inspect, monitor, shift
from densecal.cli.app import app, main
from densecal.cli.inputs import SingleValueCommand

__all__ = ["app", "main"]

for function, example in (
    (demo.demo, "demo -o report.html"),
    (fit.fit, "fit --train train.safetensors --val val.safetensors --method dac+ets -o cal.densecal"),
    (apply.apply, "apply cal.densecal --data new.safetensors -o probabilities.npz"),
    (evaluate.evaluate, "evaluate cal.densecal --data clean.safetensors --data fog-3.safetensors"),
    (evaluate.report, "report cal.densecal --data tests/ --val val.safetensors -o report.html"),
    (monitor.monitor, "monitor cal.densecal --data day-*.safetensors -o monitor.html"),
    (inspect.inspect, "inspect cal.densecal"),
    (extract.extract, "extract torchvision:resnet18 --weights model.pt --data cifar10 -o test.safetensors"),
):
    # Typer keeps the line breaks of the docstring's later paragraphs.
    paragraphs = [" ".join(paragraph.split()) for paragraph in (function.__doc__ or "").split("\n\n")]
    about, epilog = "\n\n".join(paragraphs), f"Example: densecal {example}"
    app.command(cls=SingleValueCommand, help=about, epilog=epilog)(function)
app.add_typer(shift.group, name="shift")
