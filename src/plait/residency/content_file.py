"""One content in one file: written and read in pieces, with its digest taken on the way.

The digest is XXH3 (128 bits, hex), more than ten times as fast as a copy. It is not proof against forgery, so whoever shares a
content by its digest compares the bytes too (`holds`); a copy that is read back is checked against it for damage.
"""

import contextlib
import logging
import mmap
import os
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor

from plait.types.errors import StateError

log = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20
"""Small enough to stay in the processor's cache between the digest and the copy."""
REMEDY = "Load the group again from where it came from."


def pieces(buffer: Tensor) -> Iterator[memoryview]:
    """A flat buffer's bytes, piece by piece, in the host's memory; each piece is valid until the next is asked for."""
    if buffer.device.type == "cpu":
        whole = _bytes_of(buffer)
        yield from (whole[start : start + PIECE_BYTES] for start in range(0, len(whole), PIECE_BYTES))
        return
    for start in range(0, buffer.numel(), PIECE_BYTES):
        yield _bytes_of(buffer[start : start + PIECE_BYTES].cpu())


def _bytes_of(host_buffer: Tensor) -> memoryview:
    array: Any = host_buffer.numpy()
    return memoryview(array)


def digest(parts: Iterable[memoryview]) -> str:
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def write(path: Path, parts: Iterable[memoryview], with_digest: bool, is_over: bool = False) -> str:
    """Write a file; the digest of what was written, or "". OSError if it cannot be written; then there is no file.

    `is_over`: it is there, and has as many bytes.
    """
    hasher = xxhash.xxh3_128()
    try:
        with open(path, "r+b" if is_over else "wb", buffering=0) as file:
            for part in parts:
                if with_digest:
                    hasher.update(part)
                _write_all(file, part)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return hasher.hexdigest() if with_digest else ""


def write_over(memory: mmap.mmap, parts: Iterable[memoryview], with_digest: bool) -> str:
    """`write` to a file that is mapped, of as many bytes. Other threads may run meanwhile."""
    hasher, target, start = xxhash.xxh3_128(), np.frombuffer(memory, np.uint8), 0
    for part in parts:
        if with_digest:
            hasher.update(part)
        target[start : start + len(part)] = np.frombuffer(part, np.uint8)
        start += len(part)
    return hasher.hexdigest() if with_digest else ""


def _write_all(file: FileIO, part: memoryview) -> None:
    while part:
        part = part[file.write(part) :]


def read(path: Path, buffer: Tensor, expected_digest: str = "") -> None:
    """Fill a flat buffer from a file. `StateError` if the file is missing, of another size, or not what was written."""
    hasher = xxhash.xxh3_128()
    try:
        with open(path, "rb", buffering=0) as file:
            check_size(path, os.fstat(file.fileno()).st_size, buffer.numel())
            for start in range(0, buffer.numel(), PIECE_BYTES):
                _fill(file.fileno(), path, buffer[start : start + PIECE_BYTES], hasher if expected_digest else None)
    except OSError as error:
        raise StateError(f"cannot read {path}: {error.strerror or error}.", REMEDY) from error
    if expected_digest and hasher.hexdigest() != expected_digest:
        raise StateError(f"{path} is damaged: its digest is {hasher.hexdigest()}, not {expected_digest}.", REMEDY)


def advise(path: Path, advice: str) -> None:
    """Tell the system, where it listens, what a file is for.

    `POSIX_FADV_WILLNEED`: to be read soon, so it begins to. `POSIX_FADV_DONTNEED`: not to be read for long, so it begins to
    write out what is not on the disk yet, and forgets the rest.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    with contextlib.suppress(OSError):  # whoever reads or syncs the file will find out
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, getattr(os, advice))
        finally:
            os.close(descriptor)


def _fill(descriptor: int, path: Path, part: Tensor, hasher: "xxhash.xxh3_128 | None") -> None:
    host = part if part.device.type == "cpu" else torch.empty(part.numel(), dtype=torch.uint8)
    left = _bytes_of(host)
    while left:
        num_read = os.readv(descriptor, [left])
        if not num_read:
            raise StateError(f"{path} is damaged: it is too short.", REMEDY)
        left = left[num_read:]
    if hasher is not None:
        hasher.update(_bytes_of(host))
    if host is not part:
        part.copy_(host)


def holds(path: Path, parts: Iterable[memoryview]) -> bool:
    """Whether a file's bytes are these. OSError if it cannot be read."""
    found = np.empty(0, np.uint8)
    with open(path, "rb", buffering=0) as file:
        for part in parts:
            if len(found) < len(part):
                found = np.empty(len(part), np.uint8)
            is_whole = _read_all(file, found.data[: len(part)])
            if not is_whole or not np.array_equal(found[: len(part)], np.frombuffer(part, np.uint8)):
                return False
        return not file.read(1)


def _read_all(file: FileIO, part: memoryview) -> bool:
    """False if the file ends before."""
    while part:
        num_read = file.readinto(part)
        if not num_read:
            return False
        part = part[num_read:]
    return True


def compare(path: Path, buffer: Tensor) -> bool:
    """`holds`, with `StateError` if it cannot be read."""
    try:
        return holds(path, pieces(buffer))
    except OSError as error:
        raise StateError(f"cannot read {path}: {error.strerror or error}.", REMEDY) from error


def sync(path: Path) -> None:
    """Wait until a file's bytes are on the disk. OSError if they cannot be."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> bool:
    """Whether the file is gone. One that cannot be removed is logged: it takes room, and harms nobody."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("cannot remove %s: %s", path, error)
        return False
    return True


def has_size(path: Path, num_bytes: int) -> bool:
    """False if there is no such file."""
    try:
        return path.stat().st_size == num_bytes
    except OSError:
        return False


def check_size(path: Path, found: int, expected: int) -> None:
    if found != expected:
        raise StateError(f"{path} is damaged: it has {found} bytes, not {expected}.", REMEDY)
