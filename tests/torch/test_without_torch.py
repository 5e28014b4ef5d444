"""densecal.torch where PyTorch is not installed: help works, and a name says what to install."""

from __future__ import annotations

import subprocess
import sys


def test_without_torch_help_works_and_a_name_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import densecal.torch\n"
        "help(densecal.torch); dir(densecal.torch)\n"
        "for statement in ('densecal.torch.calibrate', 'from densecal.torch import calibrate'):\n"
        "    try: exec(statement)\n"
        "    except ImportError as error: print(error)\n"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "Help on package densecal.torch" in got
    assert got.count('densecal.torch.calibrate needs PyTorch: pip install "densecal[torch]"') == 2
