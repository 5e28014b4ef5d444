"""Open files, name them in errors, and write them atomically: a write is complete or did not happen."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from io import BufferedReader
from pathlib import Path

MOST_NAME_BYTES = 200
"""Longer names are hashed in the names of temporary files, since file systems allow 255 bytes."""
_PARTIAL = ".partial"


def creation_time() -> datetime:
    """Return the time in UTC, or that of $SOURCE_DATE_EPOCH, so that the same content gives the same file."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(fixed), UTC) if fixed else datetime.now(UTC)


def hash_file(path: str | Path) -> str:
    """Return the SHA-256 of a file, or of the files of a folder in the order of their names."""
    path = Path(path)
    digest = hashlib.sha256()
    for part in sorted(path.rglob("*.npy")) if path.is_dir() else [path]:
        with open_file(part) as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def open_file(path: str | Path) -> BufferedReader:
    """Open a file for reading; raise for a folder, a pipe or a device, which might block."""
    path = Path(path)
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        names = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        similar = get_close_matches(path.name, names, n=1, cutoff=0.75)
        hint = f" Did you mean {path.with_name(similar[0])}?" if similar else ""
        raise FileNotFoundError(f"{path} does not exist.{hint}") from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is not a regular file: it is a folder, a pipe or a device.")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def split_name(source: str) -> tuple[str | None, Path]:
    """Return the name and the path of ``NAME=PATH``; the name is None for a path, or for an existing file with a =."""
    name, _, path = source.partition("=")
    return (name, Path(path)) if path and not Path(source).exists() else (None, Path(source))


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; sync it and rename it to ``path`` on success.

    On failure the temporary file is removed and ``path`` is unchanged. An existing file keeps its permissions, and a
    symbolic link its target. Temporary files left by killed processes are removed.
    """
    path = check_not_a_folder(path)
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    target.parent.mkdir(parents=True, exist_ok=True)
    with _name_in_write_errors(path):
        _remove_leftovers(target)
        temporary, handle = _create_beside(target)
    try:
        with _name_in_write_errors(path):
            yield temporary
            _install(temporary, target)
    finally:
        os.close(handle)
        temporary.unlink(missing_ok=True)


def check_not_a_folder(path: str | Path) -> Path:
    """Return the path; raise if it is a folder, a pipe or a device."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Pass the path of a file.")
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is a pipe or a device. Pass the path of a file.")
    return path


def check_output_file(path: str | Path) -> Path:
    """Return the path of a file to write; raise if it is a folder or its folder does not exist."""
    path = check_not_a_folder(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path} cannot be written: the folder {path.parent} does not exist. Check the path, or create the folder."
        )
    return path


def _create_beside(target: Path) -> tuple[Path, int]:
    """Create an empty file in the folder of the target; return its path and a descriptor that locks it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    while True:
        temporary = target.with_name(f"{_prefix(target)}{secrets.token_hex(8)}{_PARTIAL}")
        handle = os.open(temporary, flags, 0o666)
        # Another writer may treat the file as a leftover before it is locked.
        if lock_file(handle) is not False and os.fstat(handle).st_nlink:
            return temporary, handle
        os.close(handle)


def _prefix(target: Path) -> str:
    name = os.fsencode(target.name)
    return f".{target.name if len(name) <= MOST_NAME_BYTES else hashlib.sha256(name).hexdigest()[:32]}."


def _install(temporary: Path, target: Path) -> None:
    """Sync the temporary file and rename it to the target, with the permissions of the existing file."""
    # The body may have replaced the file by another one of that name.
    with temporary.open("r+b") as file:
        with suppress(FileNotFoundError):
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        os.fsync(file.fileno())
    temporary.replace(target)
    if os.name != "nt":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _remove_leftovers(target: Path) -> None:
    """Remove the temporary files of this target whose writers are dead: a living writer holds a lock."""
    ours = re.compile(re.escape(_prefix(target)) + "[0-9a-f]{16}" + re.escape(_PARTIAL))
    for leftover in target.parent.iterdir():
        if not ours.fullmatch(leftover.name) or leftover.is_symlink() or not leftover.is_file():
            continue
        with suppress(OSError):
            handle = os.open(leftover, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            try:
                if lock_file(handle):
                    leftover.unlink()
            finally:
                os.close(handle)


def lock_file(handle: int) -> bool | None:
    """Lock an open file until it is closed or its process dies. Return False if it is locked, None without locks."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # Windows, or a file system without locks: leftovers stay.
        return None
    return True


@contextmanager
def hold_lock(path: str | Path) -> Iterator[None]:
    """Lock a file while it is read, changed and written; raise if another process has locked it.

    The operating system releases the lock of a process that dies. Without locks, as on Windows, nothing is locked.
    """
    target = Path(os.path.realpath(path))
    # Not the file itself: a write replaces it with another one, which would not be locked.
    lock = target.with_name(f"{_prefix(target)}lock")
    while True:
        # A process that died may have left the file, but not its lock.
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        if lock_file(handle) is False:
            os.close(handle)
            raise BlockingIOError(
                f"{path} is being updated by another process. Nothing was written: run the command again when that "
                "process has finished."
            )
        if os.fstat(handle).st_nlink:
            break
        os.close(handle)
    try:
        yield
    finally:
        # Remove it before it is released: whoever opened it meanwhile sees that it is gone, and makes another.
        with suppress(OSError):
            lock.unlink()
        os.close(handle)


@contextmanager
def _name_in_write_errors(path: Path) -> Iterator[None]:
    """Name the file in errors of the operating system that name no file, or only a temporary one."""
    try:
        yield
    except OSError as error:
        other = error.filename is not None and not str(error.filename).endswith(_PARTIAL)
        if error.errno is None or other:
            raise
        message = f"{path} was not written: {os.strerror(error.errno)}. A file that was there before is unchanged."
        raise OSError(error.errno, message) from error


@contextmanager
def name_file_in_errors(path: str | Path) -> Iterator[None]:
    """Prefix the message of a ValueError or TypeError with the path."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error


def quoted(words: Iterable[str]) -> str:
    """Join words in quotation marks, which show spaces and empty words."""
    return listed([repr(word) for word in words])


def listed(words: Sequence[object], most: int = 8) -> str:
    """Join words with commas; after the first few, give the number of the others."""
    return ", ".join(map(str, words[:most])) + (f" and {len(words) - most} more" if len(words) > most else "")
