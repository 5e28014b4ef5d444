from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

import densecal
from densecal.cli import app
from densecal.cli.app import collect_warnings
from densecal.errors import warn_user

COMMANDS = ("demo", "fit", "apply", "evaluate", "report", "inspect", "shift show", "extract")


@pytest.fixture
def executable():
    found = shutil.which("densecal", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("needs the installed densecal command")
    return found


def test_version_names_the_release(densecal_version=densecal.__version__):
    done = subprocess.run([sys.executable, "-m", "densecal", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"densecal {densecal_version}\n"


def test_help_lists_every_command(densecal):
    answer = densecal("--help")
    assert answer.code == 0
    for command in COMMANDS:
        assert command.split()[0] in answer.out


def test_without_a_command_the_help_is_shown(densecal):
    answer = densecal()
    assert answer.code == 0
    assert "Usage" in answer.out


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_an_example(densecal, command):
    answer = densecal(*command.split(), "--help")
    assert answer.code == 0
    assert f"Example: densecal {command}" in " ".join(answer.out.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_speaks_json(densecal, command):
    assert "--json" in densecal(*command.split(), "--help").out


def test_an_unknown_command_is_wrong_usage_in_one_line(densecal, complains):
    answer = densecal("clibrate")
    assert answer.code == 2
    assert complains(answer)
    assert "clibrate" in answer.err


def test_a_missing_option_is_wrong_usage_in_one_line(densecal, complains):
    answer = densecal("fit", "-o", "x.densecal")
    assert answer.code == 2
    assert complains(answer)
    assert "--val" in answer.err


def test_debug_shows_the_traceback_wherever_it_stands(densecal):
    for arguments in (["--debug", "inspect", "nothing"], ["inspect", "nothing", "--debug"]):
        answer = densecal(*arguments)
        assert answer.code == 1
        assert "Traceback" in answer.err


def test_an_error_nobody_foresaw_is_one_line_with_the_way_to_see_more(densecal, complains, monkeypatch):
    monkeypatch.setattr("densecal.io.output_files.read", lambda *given: 1 / 0)
    Path("x.npz").touch()
    answer = densecal("inspect", "x.npz")
    assert answer.code == 1
    assert complains(answer)
    assert "ZeroDivisionError" in answer.err
    assert "--debug" in answer.err


def test_warnings_are_printed_before_the_error_that_ends_a_command(capsys):
    with pytest.raises(ValueError, match="too few"), collect_warnings():
        warn_user("one file is empty")
        raise ValueError("too few")
    assert capsys.readouterr().err == "warning: one file is empty\n"


def test_the_help_answers_at_once_and_without_numpy():
    code = "import sys; from densecal.cli import main; main(['--help']); sys.exit('numpy' in sys.modules)"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0
    assert time.perf_counter() - start < 5


def test_tab_completion_knows_the_commands(executable):
    environment = {**os.environ, "_DENSECAL_COMPLETE": "complete_bash", "COMP_WORDS": "densecal ev", "COMP_CWORD": "1"}
    done = subprocess.run([executable], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["evaluate"]


def test_tab_completion_can_be_installed(executable):
    # Without a shell above it, as in CI, there is none to detect: it is named.
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [executable, "--show-completion", "bash"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "_DENSECAL_COMPLETE" in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_ends_with_130_and_leaves_nothing_behind(tmp_path):
    # The interrupt comes while the file is being written: the worst moment.
    program = tmp_path / "slow.py"
    program.write_text(
        "import signal, sys, time\n"
        # A job in the background ignores Ctrl-C; the reader's terminal does not.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from densecal.cli import main\n"
        "def slow(*arguments, **options):\n"
        "    from densecal.io.atomic_files import atomic_write\n"
        "    with atomic_write('report.html') as temporary:\n"
        "        temporary.write_text('half')\n"
        "        print('writing', flush=True)\n"
        "        time.sleep(60)\n"
        "import densecal.cli.inspect as inspect\n"
        "inspect._describe = slow\n"
        "sys.exit(main(['inspect', 'x']))\n"
    )
    work = tmp_path / "work"
    work.mkdir()
    process = subprocess.Popen(
        [sys.executable, str(program)], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith("densecal: interrupted")
    assert list(work.iterdir()) == []


def test_the_app_is_a_typer_app_that_others_can_mount():
    assert isinstance(app, typer.Typer)
