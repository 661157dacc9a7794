"""Bytes moved against bytes needed when tensors saved under one sharding are read, or sent, under another.

Systems: Plait's slices; every rank reading all shards, rebuilding full tensors and cutting out its own, as loaders without slices
do; and `torch.distributed.checkpoint`. All read the same bytes from the page cache, one process a rank, all ranks at once. And a
weight sync between processes over gloo. `needed_bytes` is what the ranks keep.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from plait.sharding.checkpoint import load_shards, read_sharding, save_shards, shard_name
from plait.sharding.layout import Sharding, cut
from plait.sharding.plan import Slice, read_plan, sync_plan
from plait.sharding.rank_group import PRELOADED, RankGroup
from plait.sharding.shard_file import Buffer, ShardFile

CASES = (
    ("1 -> 2 rows", (1, 0), (2, 0)),
    ("2 -> 1 rows", (2, 0), (1, 0)),
    ("2 -> 3 rows", (2, 0), (3, 0)),
    ("4 -> 2 rows", (4, 0), (2, 0)),
    ("4 rows -> 2 columns", (4, 0), (2, 1)),
    ("4 columns -> 2 rows", (4, 1), (2, 0)),
)
"""Name, and number of ranks and dimension that is cut, before and after."""
SYNC_CASES = (("2 -> 1", (2, 0), (1, 0)), ("2 -> 3 rows", (2, 0), (3, 0)), ("2 rows -> 3 columns", (2, 0), (3, 1)))
NUM_TRIES = 3

Counts = tuple[int, float, float]
"""Bytes that a rank has moved, and when it began and ended, by the clock that all processes share."""


def rows(quick: bool) -> list[dict[str, Any]]:
    """One for each case and system; from the first rank's start to the last one's end, the best of a few tries."""
    shapes = model_shapes(num_layers=2, vocab_size=4096) if quick else model_shapes(num_layers=12, vocab_size=49152)
    found: list[dict[str, Any]] = []
    groups = {num_ranks: RankGroup(num_ranks, preloaded=(*PRELOADED, __name__)) for num_ranks in (1, 2, 3, 4, 5)}
    try:
        for name, saved, wanted in CASES:
            found += _reading(groups, name, _sharding(shapes, *saved), _sharding(shapes, *wanted))
        for name, training, rollout in SYNC_CASES:
            found.append(_syncing(groups, name, _sharding(shapes, *training), _sharding(shapes, *rollout)))
    finally:
        for group in groups.values():
            group.close()
    return found


def model_shapes(num_layers: int, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Of a model of SmolLM2-135M's width, gate and up projections alike."""
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens": (vocab_size, 576), "norm": (576,)}
    for layer in range(num_layers):
        shapes |= {f"layers.{layer}.{name}": (1536, 576) for name in ("gate_proj", "up_proj")}
        shapes |= {f"layers.{layer}.{name}": (576, 576) for name in ("q_proj", "o_proj")}
        shapes |= {f"layers.{layer}.down_proj": (576, 1536), f"layers.{layer}.input_norm": (576,)}
    return shapes


def _sharding(shapes: dict[str, tuple[int, ...]], num_ranks: int, dim: int) -> Sharding:
    """float32; vectors are whole everywhere where columns are cut."""
    layouts = {name: cut(shape, "F32", dim if dim < len(shape) else None, 0, num_ranks) for name, shape in shapes.items()}
    return Sharding((num_ranks,), layouts)


def _reading(groups: dict[int, RankGroup], name: str, saved: Sharding, wanted: Sharding) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        groups[saved.num_ranks].run(_save, Path(folder), saved)
        systems = {"slices": _load_slices, "full tensors rebuilt": _load_rebuilding, "torch.distributed.checkpoint": _load_dcp}
        group = groups[wanted.num_ranks]
        return [_row(name, system, wanted, partial(group.run, load, Path(folder), wanted)) for system, load in systems.items()]


def _syncing(groups: dict[int, RankGroup], name: str, training: Sharding, rollout: Sharding) -> dict[str, Any]:
    group = groups[training.num_ranks + rollout.num_ranks]
    return _row(name, "weight sync", rollout, partial(group.run, _sync, training, rollout))


def _row(case: str, system: str, wanted: Sharding, measure: Callable[[], list[Counts]]) -> dict[str, Any]:
    tries = [measure() for _ in range(NUM_TRIES)]
    moved_bytes = sum(num_bytes for num_bytes, _, _ in tries[0])
    duration_s = min(max(end_s for *_, end_s in counts) - min(start_s for _, start_s, _ in counts) for counts in tries)
    needed_bytes = sum(wanted.shard_bytes(rank) for rank in range(wanted.num_ranks))
    return {
        "case": case,
        "system": system,
        "needed_bytes": needed_bytes,
        "moved_bytes": moved_bytes,
        "moved_per_needed": moved_bytes / needed_bytes,
        "duration_s": duration_s,
        "needed_gigabytes_per_s": needed_bytes / duration_s / 1e9,
    }


# What follows runs in the ranks.


def _shard(sharding: Sharding, rank: int) -> dict[str, np.ndarray]:
    """Every element is its place in the whole tensor."""
    full = {name: np.arange(np.prod(layout.shape), dtype="f4").reshape(layout.shape) for name, layout in sharding.tensors.items()}
    boxes = {name: sharding.box(name, rank) for name in full}
    return {name: full[name][tuple(slice(*span) for span in box)].copy() for name, box in boxes.items()}


def _empty(sharding: Sharding, rank: int) -> dict[str, np.ndarray]:
    """Memory that the system has handed out already, as a trainer's has been."""
    return {name: np.full(sharding.shard_shape(name, rank), -1, "f4") for name in sharding.tensors}


def _flat(shard: dict[str, np.ndarray]) -> dict[str, Buffer]:
    return {name: array.reshape(-1).view(np.uint8) for name, array in shard.items()}


def _save(folder: Path, sharding: Sharding) -> None:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    from plait.training.fsdp_checkpoint import gather_texts

    shard = _shard(sharding, dist.get_rank())
    save_shards(folder / "shards", sharding, dist.get_rank(), _flat(shard), gather_texts(None))
    dcp.save(_dtensors(sharding, shard), checkpoint_id=folder / "dcp")


def _load_slices(folder: Path, wanted: Sharding) -> Counts:
    return _timed(wanted, lambda target, rank: load_shards(folder / "shards", wanted, rank, _flat(target)))


def _load_rebuilding(folder: Path, wanted: Sharding) -> Counts:
    """Tensor by tensor, so that just one full tensor is there at a time."""
    saved = read_sharding(folder / "shards").sharding
    whole = Sharding((1,), {name: cut(layout.shape, layout.dtype, None, 0, 1) for name, layout in saved.tensors.items()})
    plan = read_plan(saved, whole, 0)

    def load(target: dict[str, np.ndarray], rank: int) -> int:
        files = {piece.saved_rank: ShardFile(folder / "shards" / shard_name(piece.saved_rank)) for piece in plan}
        for name in target:
            full = _rebuilt(whole, files, [piece for piece in plan if piece.tensor == name], name)
            target[name][...] = full[tuple(slice(*span) for span in wanted.box(name, rank))]
        for file in files.values():
            file.close()
        return sum(file.bytes_read for file in files.values())

    return _timed(wanted, load)


def _rebuilt(whole: Sharding, files: dict[int, ShardFile], pieces: list[Slice], name: str) -> np.ndarray:
    full = np.empty(whole.tensors[name].shape, "f4")
    for piece in pieces:
        files[piece.saved_rank].read(piece, _flat({name: full})[name])
    return full


def _load_dcp(folder: Path, wanted: Sharding) -> Counts:
    import torch.distributed.checkpoint as dcp

    from plait.training.fsdp_checkpoint import CountingReader

    def load(target: dict[str, np.ndarray], rank: int) -> int:
        reader = CountingReader(folder / "dcp")
        dcp.load(_dtensors(wanted, target), storage_reader=reader)
        return reader.bytes_read

    return _timed(wanted, load)


def _timed(wanted: Sharding, load: Callable[[dict[str, np.ndarray], int], int]) -> Counts:
    import torch.distributed as dist

    rank = dist.get_rank()
    target = _empty(wanted, rank)
    dist.barrier()
    start_s = time.perf_counter()
    moved_bytes = load(target, rank)
    end_s = time.perf_counter()
    _check(target, wanted, rank)
    return moved_bytes, start_s, end_s


def _check(target: dict[str, np.ndarray], wanted: Sharding, rank: int) -> None:
    expected = _shard(wanted, rank)
    wrong = [name for name in expected if not np.array_equal(target[name], expected[name])]
    if wrong:
        raise ValueError(f"{wrong[0]} was read wrongly")


def _dtensors(sharding: Sharding, shard: dict[str, np.ndarray]) -> dict[str, Any]:
    """Over the memory of the arrays."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard

    mesh = init_device_mesh("cpu", sharding.mesh)
    tensors = {}
    for name, layout in sharding.tensors.items():
        dims = [dim for dim, split in enumerate(layout.splits) if split is not None]
        placement = Shard(dims[0]) if dims else Replicate()
        shape = torch.Size(layout.shape)
        stride = torch.empty(shape, device="meta").stride()
        tensors[name] = DTensor.from_local(torch.from_numpy(shard[name]), mesh, [placement], shape=shape, stride=stride)
    return tensors


def _sync(training: Sharding, rollout: Sharding) -> Counts:
    """The first ranks train; bytes that this rank has sent."""
    import torch.distributed as dist

    from plait.sharding.weight_sync import sync_weights

    num_training, rank = training.num_ranks, dist.get_rank()
    is_training = rank < num_training
    source = _shard(training, rank) if is_training else {}
    target = {} if is_training else _empty(rollout, rank - num_training)
    plan = sync_plan(training, rollout)
    rollout_ranks = range(num_training, num_training + rollout.num_ranks)
    dist.barrier()
    start_s = time.perf_counter()
    count = sync_weights(plan, range(num_training), rollout_ranks, _flat(source), _flat(target))
    end_s = time.perf_counter()
    if not is_training:
        _check(target, rollout, rank - num_training)
    return count.sent_bytes, start_s, end_s
