"""densecal.torch where PyTorch is not installed: the import says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_without_torch_every_way_of_importing_it_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "for statement in ('import densecal.torch', 'from densecal.torch import calibrate'):\n"
        "    try: exec(statement)\n"
        "    except ImportError as error: print(error)\n"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert got.count('densecal.torch needs torch, which is not installed: pip install "densecal[torch]"') == 2


def test_an_integration_without_its_package_says_what_to_install():
    pytest.importorskip("torch")
    for package, extra, module in (("transformers", "hf", "huggingface"), ("lightning", "lightning", "lightning")):
        code = f"import sys; sys.modules[{package!r}] = None; import densecal.integrations.{module}"
        got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
        assert f'needs {package}, which is not installed: pip install "densecal[{extra}]"' in got
