"""One safetensors file that several ranks write and read by their slices: any number of ranks, and any other tool, reads it whole.

- One rank makes the file with room for everything, then each writes the bytes of its own slices where they belong.
- The file has the bytes that the safetensors library gives it for whole tensors. Of replicas only the first holder's is written.
- A reader reads the bytes that it wants and no more, the header apart.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plait.sharding.layout import Sharding, TensorLayout
from plait.sharding.plan import Slice, read_plan
from plait.sharding.shard_file import HEADER_LENGTH_BYTES, Buffer, ShardFile

METADATA = {"format": "pt"}


def make_file(path: Path, tensors: Mapping[str, TensorLayout]) -> None:
    """A header and room; the bytes of tensors are not there yet."""
    header = _header(tensors)
    with open(path, "wb") as file:
        file.write(header)
        file.truncate(len(header) + sum(layout.num_bytes for layout in tensors.values()))


def write_slices(path: Path, sharding: Sharding, rank: int, buffers: Mapping[str, Buffer]) -> None:
    """The rank's own, synced. `buffers` are the bytes of its shard of each tensor."""
    start, offsets = len(_header(sharding.tensors)), _offsets(sharding.tensors)
    file = os.open(path, os.O_WRONLY)
    try:
        for name in sharding.tensors:
            if sharding.is_first_holder(name, rank):
                _write(file, start + offsets[name], _own_slice(sharding, name, rank), buffers[name])
        os.fsync(file)
    finally:
        os.close(file)


def read_slices(path: Path, wanted: Sharding, rank: int, targets: Mapping[str, Buffer]) -> int:
    """Fill the rank's own memory with its shard of each wanted tensor; bytes read.

    Raises StateError if a tensor is missing, of another shape or dtype, or the file is torn; `targets` may then be filled in part.
    """
    with ShardFile(path) as file:
        saved = Sharding((1,), file.layouts())
        for piece in read_plan(saved, wanted, rank):
            file.read(piece, targets[piece.tensor])
        return file.bytes_read


def _own_slice(sharding: Sharding, name: str, rank: int) -> Slice:
    """From the whole tensor in the file to the rank's shard of it."""
    layout, box = sharding.tensors[name], sharding.box(name, rank)
    return Slice(name, 0, box, tuple((0, length) for length in layout.shape), box, layout.item_bytes)


def _write(file: int, start: int, piece: Slice, buffer: Buffer) -> None:
    for run in piece.runs():
        left = buffer[run.wanted_offset : run.wanted_offset + run.num_bytes].data
        offset = start + run.saved_offset
        while left:
            written = os.pwrite(file, left, offset)
            left, offset = left[written:], offset + written


def _header(tensors: Mapping[str, TensorLayout]) -> bytes:
    header: dict[str, Any] = {"__metadata__": METADATA}
    for name, offset in _offsets(tensors).items():
        layout = tensors[name]
        header[name] = {
            "dtype": layout.dtype, "shape": list(layout.shape), "data_offsets": [offset, offset + layout.num_bytes]
        }  # fmt: skip
    encoded = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    encoded += b" " * (-len(encoded) % HEADER_LENGTH_BYTES)
    return len(encoded).to_bytes(HEADER_LENGTH_BYTES, "little") + encoded


def _offsets(tensors: Mapping[str, TensorLayout]) -> dict[str, int]:
    """In the order of the safetensors library: wide items first, then by name."""
    offsets, end = {}, 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].item_bytes, name)):
        offsets[name] = end
        end += tensors[name].num_bytes
    return offsets
