"""The state of an `FsdpTrainer` on disk: saved at any number of ranks, loaded at any other. Every rank of the group calls.

- `save`, `load`: Plait's shards (`sharding.checkpoint`); a rank reads the bytes of its own slices and no more.
- `save_dcp`, `load_dcp`: `torch.distributed.checkpoint`, for tools that know its format; it reads whole saved pieces.
- A save that fails or is killed leaves what lay in the folder before. Folders are replaced in one step.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor

from plait.sharding.checkpoint import Gather, agree, load_shards, read_sharding, save_shards
from plait.sharding.torch_bytes import local_part, sharding_of, tensor_bytes
from plait.state.durable import TEMPORARY_PREFIX, replace_folder
from plait.training.fsdp_trainer import FsdpTrainer
from plait.types.errors import StateError

STEPS_NOTE = "num_steps"


def save(trainer: FsdpTrainer, folder: Path) -> None:
    """Weights, moments and the number of steps. Raises StateError on every rank if one could not write its share."""
    state = trainer.state()
    buffers = {name: tensor_bytes(local_part(tensor).cpu()) for name, tensor in state.items()}
    notes = {STEPS_NOTE: trainer.num_steps}
    save_shards(folder, sharding_of(state), trainer.rank, buffers, gather_texts(trainer.group), notes)


def load(trainer: FsdpTrainer, folder: Path) -> int:
    """Go back to a saved state, exactly, and forget waiting gradients; bytes that this rank has read.

    Raises StateError, on every rank, if it is of another model or torn; load another one then, for slices may be mixed.
    """
    state, read_bytes = trainer.state(), [0]

    def fill() -> None:
        with host_copies(state) as host:
            buffers = {name: tensor_bytes(tensor) for name, tensor in host.items()}
            read_bytes[0] = load_shards(folder, sharding_of(state), trainer.rank, buffers)

    agree(gather_texts(trainer.group), fill, "a checkpoint could not be read")
    trainer.discard_gradients()
    return read_bytes[0]


def save_dcp(trainer: FsdpTrainer, folder: Path) -> None:
    """As `save`, in the format of `torch.distributed.checkpoint`."""
    staging = folder.with_name(f"{TEMPORARY_PREFIX}dcp-{folder.name}")
    gather = gather_texts(trainer.group)

    def clear() -> None:
        if trainer.rank == 0:
            shutil.rmtree(staging, ignore_errors=True)

    def publish() -> None:
        if trainer.rank == 0:
            replace_folder(folder, lambda temporary: _move_entries(staging, temporary))
            staging.rmdir()

    agree(gather, clear)
    dcp.save(dict(trainer.state()), storage_writer=dcp.FileSystemWriter(staging), process_group=trainer.group)
    agree(gather, publish)


def load_dcp(trainer: FsdpTrainer, folder: Path) -> int:
    """As `load`; the bytes of the pieces that this rank has read, which may be more than it keeps."""
    reader = CountingReader(folder)
    dcp.load(dict(trainer.state()), storage_reader=reader, process_group=trainer.group)
    trainer.discard_gradients()
    return reader.bytes_read


def saved_steps(folder: Path) -> int:
    """Steps that a checkpoint of `save` has behind it."""
    return int(read_sharding(folder).notes[STEPS_NOTE])


def gather_texts(group: dist.ProcessGroup | None) -> Gather:
    def gather(text: str) -> list[str]:
        texts: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(texts, text, group=group)
        return texts

    return gather


class CountingReader(dcp.FileSystemReader):
    """Counts the saved pieces that are read; each is read from its start to its end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.bytes_read = 0

    def _slice_file(self, file: IO[bytes], sinfo: Any) -> IO[bytes]:
        self.bytes_read += sinfo.length
        piece: IO[bytes] = super()._slice_file(file, sinfo)
        return piece


@contextmanager
def host_copies(state: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """This rank's parts on the CPU, to be filled; what lies on a device is written back at the end."""
    local = {name: local_part(tensor) for name, tensor in state.items()}
    host = {
        name: tensor if tensor.device.type == "cpu" else torch.empty_like(tensor, device="cpu") for name, tensor in local.items()
    }
    yield host
    for name, tensor in local.items():
        if tensor.device.type != "cpu":
            tensor.copy_(host[name])


def _move_entries(source: Path, target: Path) -> None:
    entries = list(source.iterdir())
    if not entries:
        raise StateError(f"{source} is empty.", "Save again.")
    for entry in entries:
        entry.rename(target / entry.name)
