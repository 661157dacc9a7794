"""Files and folders that are whole or absent, whatever happens in between.

- A file or folder appears under its final name only after its bytes and its entries are on the disk.
- When the disk is full or a write fails, what was there before is untouched and the temporary is removed.
- A folder is replaced in one step where the file system can exchange two names; else it is missing for a moment.
- Temporaries start with `TEMPORARY_PREFIX`; nobody reads them, and a later writer may remove them.
"""

import ctypes
import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from plait.types.errors import StateError

TEMPORARY_PREFIX = ".tmp-"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
"""Of Linux's renameat2."""


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create the folder and its parents, each durable in its own parent."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file that nobody reads yet, and wait until its bytes are on the disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` at `path`: a reader, at any time and after any crash, sees the old file or the new one."""
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{path.name}")
    try:
        make_folder(path.parent)
        write_synced(temporary, content)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):  # What went wrong first is what is told.
            temporary.unlink()
        raise _write_error(path, error) from error


def publish_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` write synced files into a temporary folder, then make it appear at `folder`, which must not exist."""
    _publish(folder, fill, os.rename)


def replace_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Like `publish_folder`, in place of what lies at `folder`, if anything does."""
    _publish(folder, fill, _replace if folder.exists() else os.rename)


def _publish(folder: Path, fill: Callable[[Path], None], move: Callable[[Path, Path], None]) -> None:
    temporary = folder.with_name(f"{TEMPORARY_PREFIX}{folder.name}")
    try:
        make_folder(folder.parent)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        fill(temporary)
        sync_folder(temporary)
        move(temporary, folder)
        sync_folder(folder.parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _write_error(folder, error) from error
    except StateError:  # Of one who filled it, and says why.
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _replace(temporary: Path, folder: Path) -> None:
    if not _exchange(temporary, folder):
        remove_folder(folder)
        os.rename(temporary, folder)
    sync_folder(folder.parent)
    shutil.rmtree(temporary, ignore_errors=True)  # now it holds what was replaced, if it is there at all


def _exchange(left: Path, right: Path) -> bool:
    """Swap two names in one step; False where the system or the file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(left), _AT_FDCWD, os.fsencode(right), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(right))


def remove_folder(folder: Path) -> None:
    """Remove a folder so that it is whole or gone: it loses its name first."""
    doomed = folder.with_name(f"{TEMPORARY_PREFIX}removed-{folder.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(folder, doomed)
    sync_folder(folder.parent)
    shutil.rmtree(doomed)


def remove_temporaries(folder: Path) -> None:
    """Remove what a killed writer left behind. Only the holder of the run's lock may call this."""
    for entry in folder.glob(f"{TEMPORARY_PREFIX}*") if folder.is_dir() else ():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _write_error(path: Path, error: OSError) -> StateError:
    return StateError(
        f"cannot write {path}: {error.strerror or error}.",
        "What was stored before is intact: make room or mend the permissions, then `plait resume` the run.",
    )
