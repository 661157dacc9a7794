"""One rank's shard on disk: a safetensors file, written tensor by tensor and read by byte ranges. Torch-free.

- Buffers are flat `uint8` arrays over the caller's own memory: nothing is copied on the way, whatever the dtype.
- `bytes_read` counts what the system gave, the header apart.
"""

import json
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from plait.sharding.box import Box, extents, volume, within
from plait.sharding.layout import ITEM_BYTES, TensorLayout
from plait.sharding.plan import Run, Slice
from plait.types.errors import StateError

HEADER_LENGTH_BYTES = 8
"""A little-endian integer, before the JSON header (safetensors format)."""
MIN_RUN_BYTES = 32 * 1024
"""Shorter runs are copied out of the mapped file: a system call for each would take longer than the copy."""
MAX_BUFFERS = 1024
"""Of one vectored read (IOV_MAX)."""

Buffer = np.ndarray[Any, np.dtype[np.uint8]]


class ShardTensor:
    """A tensor of a shard that is to be written: its shape there, its dtype by the format's name, and its bytes."""

    def __init__(self, shape: tuple[int, ...], dtype: str, buffer: Buffer) -> None:
        self.shape, self.dtype, self.buffer = shape, dtype, buffer


def write_shard(path: Path, tensors: Mapping[str, ShardTensor]) -> int:
    """Write and sync a file that nobody reads yet; its size in bytes."""
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.buffer.nbytes
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % HEADER_LENGTH_BYTES)
    with open(path, "wb") as file:
        file.write(len(encoded).to_bytes(HEADER_LENGTH_BYTES, "little") + encoded)
        for tensor in tensors.values():
            file.write(tensor.buffer.data)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


class ShardFile:
    """An open shard. Raises StateError if the file is missing, torn or of another shard."""

    def __init__(self, path: Path) -> None:
        self.path, self.bytes_read = path, 0
        self._mapped: Buffer | None = None
        try:
            self._file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise StateError(f"{path} cannot be read: {error.strerror}.", "Use an earlier checkpoint.") from error
        try:
            self._header, self._data_start = _read_header(self._file, path)
        except BaseException:
            os.close(self._file)
            raise

    def layouts(self) -> dict[str, TensorLayout]:
        """Every tensor in the file, as one that is not cut."""
        entries = ((name, tuple(entry["shape"]), entry["dtype"]) for name, entry in self._header.items())
        return {name: TensorLayout(shape, dtype, (None,) * len(shape)) for name, shape, dtype in entries}

    def read(self, piece: Slice, target: Buffer) -> None:
        """Put the slice in its place in `target`, the bytes of the wanted shard of this tensor."""
        start = self._start_of(piece)
        if piece.run_bytes >= MIN_RUN_BYTES or piece.run_bytes == piece.num_bytes:
            for offset, buffers in _joined(piece.runs(), target):
                self._read_into(start + offset, buffers)
        else:
            source = self._map()[start : start + volume(piece.saved_box) * piece.item_bytes]
            copy_slice(piece, source, target)
            self.bytes_read += piece.num_bytes

    def close(self) -> None:
        self._mapped = None
        os.close(self._file)

    def __enter__(self) -> "ShardFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_of(self, piece: Slice) -> int:
        entry = self._header.get(piece.tensor)
        shape = extents(piece.saved_box)
        if entry is None or tuple(entry["shape"]) != shape or ITEM_BYTES.get(entry["dtype"]) != piece.item_bytes:
            raise StateError(f"{self.path} does not hold {piece.tensor!r} of shape {shape}.", "It is of another checkpoint.")
        return self._data_start + int(entry["data_offsets"][0])

    def _read_into(self, offset: int, buffers: list[Buffer]) -> None:
        """One vectored read, continued where the system gave less than was asked for."""
        while buffers:
            found = os.preadv(self._file, cast(list[bytearray], buffers), offset)
            if found == 0:
                raise StateError(f"{self.path} ends before byte {offset}.", "It is torn: use an earlier checkpoint.")
            self.bytes_read, offset = self.bytes_read + found, offset + found
            buffers = _behind(buffers, found)

    def _map(self) -> Buffer:
        if self._mapped is None:
            self._mapped = np.frombuffer(mmap.mmap(self._file, 0, prot=mmap.PROT_READ), np.uint8)
        return self._mapped


def copy_slice(piece: Slice, source: Buffer, target: Buffer) -> None:
    """Copy a slice from the bytes of the saved shard to those of the wanted one, both in memory."""
    part_of(target, piece.wanted_box, piece)[...] = part_of(source, piece.saved_box, piece)


def part_of(buffer: Buffer, shard: Box, piece: Slice) -> np.ndarray[Any, Any]:
    """The slice's box in the bytes of a shard that holds it: a view, of opaque items."""
    index: tuple[Any, ...] = (*within(piece.box, shard), ...)
    part: np.ndarray[Any, Any] = buffer.view(f"u{piece.item_bytes}").reshape(extents(shard))[index]
    return part


def _joined(runs: Iterator[Run], target: Buffer) -> Iterator[tuple[int, list[Buffer]]]:
    """(offset in the file, where its bytes go) for runs that follow each other in the file."""
    start, end, buffers = 0, -1, list[Buffer]()
    for run in runs:
        if run.saved_offset != end or len(buffers) == MAX_BUFFERS:
            if buffers:
                yield start, buffers
            start, buffers = run.saved_offset, []
        buffers.append(target[run.wanted_offset : run.wanted_offset + run.num_bytes])
        end = run.saved_offset + run.num_bytes
    if buffers:
        yield start, buffers


def _behind(buffers: list[Buffer], num_bytes: int) -> list[Buffer]:
    """What is left of the buffers after so many bytes."""
    while buffers and num_bytes >= buffers[0].nbytes:
        num_bytes -= buffers[0].nbytes
        buffers = buffers[1:]
    return [buffers[0][num_bytes:], *buffers[1:]] if buffers else []


def _read_header(file: int, path: Path) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(os.pread(file, HEADER_LENGTH_BYTES, 0), "little")
    encoded = os.pread(file, length, HEADER_LENGTH_BYTES) if length <= os.fstat(file).st_size else b""
    try:
        header: dict[str, Any] = json.loads(encoded)
    except ValueError as error:
        raise StateError(f"{path} has no header of a safetensors file.", "It is torn: use an earlier checkpoint.") from error
    header.pop("__metadata__", None)
    end = HEADER_LENGTH_BYTES + length
    needed = end + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if os.fstat(file).st_size != needed:
        raise StateError(f"{path} has {os.fstat(file).st_size} bytes, not {needed}.", "It is torn: use an earlier checkpoint.")
    return header, end
