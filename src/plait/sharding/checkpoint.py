"""A folder of shards, one safetensors file for each rank that holds something, and `sharding.json`, which says what lies where.

- All ranks of a group save together and load together, but any number of ranks, under any sharding, may load.
- A folder is whole or absent: ranks write into a temporary folder, which takes the place of the old one when all are done. A rank
  that is killed or fails in between leaves the old one as it was.
- Of replicas only the first holder's is written. Every rank reads just the bytes that it wants.
"""

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from plait.sharding.layout import Sharding
from plait.sharding.plan import read_plan
from plait.sharding.shard_file import Buffer, ShardFile, ShardTensor, write_shard
from plait.state.durable import TEMPORARY_PREFIX, replace_folder, write_synced
from plait.types.errors import PlaitError, StateError

SHARDING_FILE = "sharding.json"

Gather = Callable[[str], list[str]]
"""Every rank gives a text and gets those of all ranks, in their order; returns when all have come so far."""


class SavedSharding(msgspec.Struct, frozen=True):
    """What `sharding.json` holds; `notes` are the caller's."""

    sharding: Sharding
    notes: dict[str, Any] = {}


def save_shards(
    folder: Path, sharding: Sharding, rank: int, buffers: Mapping[str, Buffer], gather: Gather, notes: Mapping[str, Any] = {}
) -> None:
    """Called by every rank with the bytes of its shard of each tensor. `folder` is replaced; its parent must exist.

    Raises StateError on every rank if one of them failed; what lay in `folder` is then as before.
    """

    staging = folder.with_name(f"{TEMPORARY_PREFIX}shards-{folder.name}")

    def stage() -> None:
        if rank == 0:
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir()

    def publish() -> None:
        if rank == 0:
            replace_folder(folder, fill)
            staging.rmdir()

    def fill(temporary: Path) -> None:
        for shard in staging.iterdir():
            shard.rename(temporary / shard.name)
        write_synced(temporary / SHARDING_FILE, msgspec.json.encode(SavedSharding(sharding, dict(notes))))

    for step in (stage, lambda: _write_own(staging, sharding, rank, buffers), publish):
        agree(gather, step)


def read_sharding(folder: Path) -> SavedSharding:
    """Raises StateError if there is no whole checkpoint in the folder."""
    path = folder / SHARDING_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedSharding)
    except (OSError, msgspec.MsgspecError) as error:
        raise StateError(f"{path} cannot be read: {error}.", "Use an earlier checkpoint.") from error


def load_shards(folder: Path, wanted: Sharding, rank: int, targets: Mapping[str, Buffer]) -> int:
    """Fill the rank's own memory with its shard of each wanted tensor; bytes read, headers apart.

    Nobody waits for anybody. Raises StateError if a tensor is missing, of another shape, or a file is torn; `targets` may then
    be filled in part.
    """
    saved = read_sharding(folder).sharding
    with ExitStack() as stack:
        files: dict[int, ShardFile] = {}
        for piece in read_plan(saved, wanted, rank):
            if piece.saved_rank not in files:
                files[piece.saved_rank] = stack.enter_context(ShardFile(folder / shard_name(piece.saved_rank)))
            files[piece.saved_rank].read(piece, targets[piece.tensor])
        return sum(file.bytes_read for file in files.values())


def shard_name(rank: int) -> str:
    return f"shard-{rank:05d}.safetensors"


def _write_own(folder: Path, sharding: Sharding, rank: int, buffers: Mapping[str, Buffer]) -> None:
    own = {
        name: ShardTensor(sharding.shard_shape(name, rank), layout.dtype, buffers[name])
        for name, layout in sharding.tensors.items()
        if sharding.is_first_holder(name, rank)
    }
    write_shard(folder / shard_name(rank), own)


def agree(gather: Gather, work: Callable[[], None], trouble: str = "a checkpoint could not be written") -> None:
    """Do one's share, and wait for the others. Raises StateError, on all ranks, if any of them could not do its own."""
    failure: BaseException | None = None
    try:
        work()
    except (OSError, PlaitError) as error:
        failure = error
    problems = [problem for problem in gather(str(failure) if failure is not None else "") if problem]
    if problems:
        raise StateError(f"{trouble}: {problems[0]}", "What was stored before is intact.") from failure
