"""Atomic writes: complete, synced and in place, or as if they had not been tried."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from densecal import Outputs
from densecal.io.atomic_files import atomic_write, hold_lock, open_file

posix = pytest.mark.skipif(sys.platform == "win32", reason="permissions, links and pipes of POSIX")


def write(path, text="new"):
    with atomic_write(path) as temporary:
        temporary.write_text(text)


def names(folder):
    return sorted(file.name for file in folder.iterdir())


@posix
def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "target")
    write(tmp_path / "link", "first")
    write(tmp_path / "link", "second")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there" / "target").read_text() == "second"
    assert names(tmp_path) == ["link", "there"] and names(tmp_path / "there") == ["target"]


@posix
def test_permissions_are_those_of_the_old_file_or_of_the_umask_which_is_not_touched(tmp_path, monkeypatch):
    before = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", lambda _: pytest.fail("other threads create files meanwhile"))
        write(tmp_path / "new")
        write(tmp_path / "secret")
        (tmp_path / "secret").chmod(0o600)
        write(tmp_path / "secret")
    finally:
        monkeypatch.undo()
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "secret")]
    assert modes == [0o640, 0o600]


@posix
def test_the_file_and_its_folder_are_synced_before_and_after_the_rename(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append((stat.S_ISDIR(os.fstat(handle).st_mode), names(tmp_path)))
    )
    write(tmp_path / "file")
    (of_file, before), (of_folder, after) = synced
    assert (of_file, of_folder) == (False, True) and before != ["file"] and after == ["file"]


@posix
def test_what_dead_writers_left_is_removed_and_what_living_ones_write_is_not(tmp_path):
    (tmp_path / ".file.0123456789abcdef.partial").write_text("a killed process wrote this")
    (tmp_path / ".file.notes.partial").write_text("somebody else's")
    with atomic_write(tmp_path / "file") as temporary:
        write(tmp_path / "file", "from another thread")
        assert names(tmp_path) == sorted([".file.notes.partial", temporary.name, "file"])
        temporary.write_text("later")
    assert names(tmp_path) == [".file.notes.partial", "file"] and (tmp_path / "file").read_text() == "later"


@posix
def test_a_full_disk_names_the_file_and_changes_nothing(tmp_path):
    import resource

    path = tmp_path / "val.safetensors"
    small, large = Outputs([[2.0, 1.0]] * 3), Outputs([[2.0, 1.0]] * 100_000)
    small.save(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        for name in ("val.safetensors", "val.npz"):
            with pytest.raises(OSError, match=rf"{name} was not written: File too large"):
                large.save(tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(Outputs.load(path)) == 3 and names(tmp_path) == ["val.safetensors"]


def test_the_longest_possible_name_can_be_written(tmp_path):
    write(tmp_path / ("n" * 255))
    assert names(tmp_path) == ["n" * 255]


@posix
def test_pipes_and_devices_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for read in (open_file, Outputs.load):
        with pytest.raises(OSError, match=r"pipe\.csv is not a regular file"):
            read(tmp_path / "pipe.csv")
    with pytest.raises(OSError, match="is a pipe or a device"):
        write("/dev/null")


@posix
def test_a_lock_is_exclusive_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "state"
    with hold_lock(path):
        with pytest.raises(BlockingIOError, match="is being updated by another process"), hold_lock(path):
            pass
        path.write_text("new")
        with hold_lock(tmp_path / "other"):
            pass
    with hold_lock(path):
        pass
    assert list(tmp_path.iterdir()) == [path]


@posix
def test_a_process_that_dies_releases_its_lock(tmp_path):
    code = "import os, sys\nfrom densecal.io.atomic_files import hold_lock\nwith hold_lock(sys.argv[1]): os._exit(1)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "state")], check=False)
    assert len(list(tmp_path.iterdir())) == 1, "the process leaves the file of its lock"
    with hold_lock(tmp_path / "state"):
        pass
    assert list(tmp_path.iterdir()) == []
