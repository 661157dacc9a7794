"""Weights from the ranks of a training group to those of a rollout group of another sharding, point to point.

- Each rank of the rollout group gets just the bytes of its own shard; no rank ever holds a full tensor that it does not keep.
- Slices go one after another through one buffer a side, which is as large as the largest piece of a slice that is sent at once.
- A rank may be in both groups: what it keeps for itself is copied, and not sent.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
import torch
import torch.distributed as dist

from plait.sharding.box import Box, extents, volume
from plait.sharding.plan import Slice, Transfer
from plait.sharding.shard_file import Buffer, copy_slice, items

MAX_MESSAGE_BYTES = 64 << 20
"""Larger slices are sent in several messages, cut along their first dimension."""
EMPTY: Mapping[str, Buffer] = {}


class SyncCount(msgspec.Struct, frozen=True):
    """Bytes of tensors that this rank has moved; `copied_bytes` within itself."""

    sent_bytes: int = 0
    received_bytes: int = 0
    copied_bytes: int = 0


def sync_weights(
    plan: Sequence[Transfer],
    training_ranks: Sequence[int],
    rollout_ranks: Sequence[int],
    source: Mapping[str, Buffer] = EMPTY,
    target: Mapping[str, Buffer] = EMPTY,
    group: dist.ProcessGroup | None = None,
) -> SyncCount:
    """Called by every rank of either group with the same `plan` (`plan.sync_plan`); the lists give their ranks in `group`.

    `source` are the bytes of this rank's training shard, `target` of its rollout shard, which is filled in place.
    """
    me = dist.get_rank(group)
    sent = received = copied = 0
    for transfer in plan:
        sender, receiver = training_ranks[transfer.slice.saved_rank], rollout_ranks[transfer.wanted_rank]
        name = transfer.slice.tensor
        if sender == receiver == me:
            copy_slice(transfer.slice, source[name], target[name])
            copied += transfer.slice.num_bytes
        elif me == sender:
            sent += sum(_send(piece, source[name], receiver, group) for piece in _messages(transfer.slice))
        elif me == receiver:
            received += sum(_receive(piece, target[name], sender, group) for piece in _messages(transfer.slice))
    return SyncCount(sent, received, copied)


def _send(piece: Slice, source: Buffer, receiver: int, group: dist.ProcessGroup | None) -> int:
    saved = items(source, extents(piece.saved_box), piece.item_bytes)
    message = np.ascontiguousarray(saved[piece.saved_index]).reshape(-1).view(np.uint8)
    dist.send(torch.from_numpy(message), group_dst=receiver, group=group)
    return message.nbytes


def _receive(piece: Slice, target: Buffer, sender: int, group: dist.ProcessGroup | None) -> int:
    message = torch.empty(piece.num_bytes, dtype=torch.uint8)
    dist.recv(message, group_src=sender, group=group)
    wanted = items(target, extents(piece.wanted_box), piece.item_bytes)
    wanted[piece.wanted_index] = items(message.numpy(), extents(piece.box), piece.item_bytes)
    return piece.num_bytes


def _messages(piece: Slice) -> Iterator[Slice]:
    """The slice in parts of at most `MAX_MESSAGE_BYTES`, or of one index of its first dimension where that is more."""
    if piece.num_bytes <= MAX_MESSAGE_BYTES:
        yield piece
        return
    (start, stop), inner = piece.box[0], piece.box[1:]
    step = max(1, MAX_MESSAGE_BYTES // (volume(inner) * piece.item_bytes))
    for first in range(start, stop, step):
        box: Box = ((first, min(stop, first + step)), *inner)
        yield msgspec.structs.replace(piece, box=box)
