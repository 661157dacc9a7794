"""Weights from the ranks of a training group to those of a rollout group of another sharding, point to point.

- Each rank of the rollout group gets just the bytes of its own shard; no rank ever holds a full tensor that it does not keep.
- All ranks follow the one order of the plan, each with a few messages under way; the earliest message that has not arrived then has
  both of its ends at work on it, so there is no deadlock.
- What is in one piece is sent and received where it lies; else it goes through a buffer of one message.
- A rank may be in both groups: what it keeps for itself is copied, and not sent.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
import torch
import torch.distributed as dist

from plait.sharding.box import Box, volume
from plait.sharding.plan import Slice, Transfer
from plait.sharding.shard_file import Buffer, copy_slice, part_of

MAX_MESSAGE_BYTES = 64 << 20
"""Larger slices are sent in several messages, cut along their first dimension."""
MAX_UNDER_WAY = 3
"""Messages of a rank that are under way at one time."""

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
    me, messages = dist.get_rank(group), _Messages(group)
    sent = received = copied = 0
    for tag, transfer, piece in _pieces(plan):
        sender, receiver = training_ranks[transfer.slice.saved_rank], rollout_ranks[transfer.wanted_rank]
        if sender == receiver == me:
            copy_slice(piece, source[piece.tensor], target[piece.tensor])
            copied += piece.num_bytes
        elif me == sender:
            messages.send(piece, source[piece.tensor], receiver, tag)
            sent += piece.num_bytes
        elif me == receiver:
            messages.receive(piece, target[piece.tensor], sender, tag)
            received += piece.num_bytes
    messages.finish()
    return SyncCount(sent, received, copied)


class _Messages:
    """Of one rank, in order; each is a request and what is to be done when it is through."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group = group
        self._under_way: deque[tuple[dist.Work, Callable[[], None]]] = deque()

    def send(self, piece: Slice, source: Buffer, receiver: int, tag: int) -> None:
        part = part_of(source, piece.saved_box, piece)
        message = torch.from_numpy(np.ascontiguousarray(part).reshape(-1).view(np.uint8))
        self._add(dist.isend(message, group_dst=receiver, group=self._group, tag=tag), lambda: None)

    def receive(self, piece: Slice, target: Buffer, sender: int, tag: int) -> None:
        part = part_of(target, piece.wanted_box, piece)
        is_whole = part.flags.c_contiguous
        message = part.reshape(-1).view(np.uint8) if is_whole else np.empty(piece.num_bytes, np.uint8)

        def put() -> None:
            if not is_whole:
                part[...] = part_of(message, piece.box, piece)

        self._add(dist.irecv(torch.from_numpy(message), group_src=sender, group=self._group, tag=tag), put)

    def finish(self) -> None:
        while self._under_way:
            self._wait_for_first()

    def _add(self, work: dist.Work | None, done: Callable[[], None]) -> None:
        assert work is not None, "this rank is not in the group"
        self._under_way.append((work, done))
        if len(self._under_way) == MAX_UNDER_WAY:
            self._wait_for_first()

    def _wait_for_first(self) -> None:
        work, done = self._under_way.popleft()
        work.wait()
        done()


def _pieces(plan: Sequence[Transfer]) -> Iterator[tuple[int, Transfer, Slice]]:
    """Every message of the plan, with the number that all ranks know it by."""
    messages = ((transfer, piece) for transfer in plan for piece in _parts(transfer.slice))
    return ((tag, *message) for tag, message in enumerate(messages))


def _parts(piece: Slice) -> Iterator[Slice]:
    """The slice in parts of at most `MAX_MESSAGE_BYTES`, or of one index of its first dimension where that is more."""
    if piece.num_bytes <= MAX_MESSAGE_BYTES:
        yield piece
        return
    (start, stop), inner = piece.box[0], piece.box[1:]
    step = max(1, MAX_MESSAGE_BYTES // (volume(inner) * piece.item_bytes))
    for first in range(start, stop, step):
        box: Box = ((first, min(stop, first + step)), *inner)
        yield msgspec.structs.replace(piece, box=box)
