"""The two files of a step's record, written and read by the ranks of an `FsdpTrainer`. Every rank of the group calls.

They are the files that `FullTrainer`'s state is written to: what one number of ranks has saved, any other goes on with.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from plait.models.tensor_names import hf_name
from plait.sharding.checkpoint import agree
from plait.sharding.torch_bytes import local_part, sharding_of, tensor_bytes
from plait.sharding.whole_file import make_file, read_slices, write_slices
from plait.state.tensor_file import digest_file
from plait.training.fsdp_checkpoint import gather_texts, host_copies
from plait.training.fsdp_trainer import FsdpTrainer


class Files(NamedTuple):
    """Of a version; without `optimizer` moments start anew."""

    weights: Path
    optimizer: Path | None


def save(trainer: FsdpTrainer, weights: Path, optimizer: Path) -> tuple[str, str]:
    """Write the synced files, which nobody reads yet; their digests (`state.tensor_file`).

    Raises StateError on every rank if one could not write its share.
    """
    gather, states = gather_texts(trainer.group), {weights: stored_weights(trainer), optimizer: trainer.moments()}

    def make() -> None:
        for path, state in states.items() if trainer.rank == 0 else ():
            make_file(path, sharding_of(state).tensors)

    def write() -> None:
        for path, state in states.items():
            buffers = {name: tensor_bytes(local_part(tensor).cpu()) for name, tensor in state.items()}
            write_slices(path, sharding_of(state), trainer.rank, buffers)

    agree(gather, make)
    agree(gather, write)
    return _digests(trainer, weights, optimizer)


def load(trainer: FsdpTrainer, files: Files) -> int:
    """Go to a saved state, exactly, and forget waiting gradients; bytes that this rank has read.

    Raises StateError, on every rank, if it is of another model or torn; load another one then, for slices may be mixed.
    """
    read_bytes = [0]

    def fill() -> None:
        read_bytes[0] += _fill(files.weights, stored_weights(trainer), trainer.rank)
        if files.optimizer is None:
            start_anew(trainer)
        else:
            read_bytes[0] += _fill(files.optimizer, trainer.moments(), trainer.rank)

    agree(gather_texts(trainer.group), fill, "a version could not be read")
    trainer.discard_gradients()
    return read_bytes[0]


def start_anew(trainer: FsdpTrainer) -> None:
    """Moments as before the first step."""
    for tensor in trainer.moments().values():
        local_part(tensor).zero_()


def stored_weights(trainer: FsdpTrainer) -> dict[str, Tensor]:
    """The tensors themselves, by their names in files."""
    return {hf_name(name): tensor for name, tensor in trainer.weights().items()}


@torch.no_grad()
def _fill(path: Path, state: Mapping[str, Tensor], rank: int) -> int:
    with host_copies(state) as host:
        return read_slices(path, sharding_of(state), rank, {name: tensor_bytes(tensor) for name, tensor in host.items()})


def _digests(trainer: FsdpTrainer, weights: Path, optimizer: Path) -> tuple[str, str]:
    """Each file is read by one rank, the first and the last."""
    own: list[str] = []

    def read() -> None:
        if trainer.rank == 0:
            own.append(digest_file(weights))
        if trainer.rank == trainer.mesh.size() - 1:
            own.append(digest_file(optimizer))

    gather = gather_texts(trainer.group)
    agree(gather, read)
    found = [digest for text in gather(" ".join(own)) for digest in text.split()]
    return found[0], found[1]
