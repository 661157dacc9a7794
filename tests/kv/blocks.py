"""Blocks, memory and tiers for tests."""

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from plait.kv.block_record import BlockRecord
from plait.kv.chain import Link, chain
from plait.kv.cold_tier import ColdTier
from plait.kv.host_tier import HostTier
from plait.kv.segment import HEADER_BYTES, Segment
from plait.kv.shared_memory import SharedMemory
from plait.kv.tiers import LowerTiers

PAYLOAD_BYTES = 5000
BLOCK = 4
ROOT = b"root-of-tenant-a"


def segment_bytes(num_slots: int) -> int:
    return 4096 + num_slots * (HEADER_BYTES + PAYLOAD_BYTES) + 4095


def make_segment(num_slots: int) -> Segment:
    return Segment(mmap.mmap(-1, segment_bytes(num_slots)), PAYLOAD_BYTES)


def payload_of(link: Link) -> bytes:
    """What is right for a block, and for no other."""
    seed = link.pack()
    return (seed * (PAYLOAD_BYTES // len(seed) + 1))[:PAYLOAD_BYTES]


def record_of(link: Link) -> BlockRecord:
    return BlockRecord(link, payload_of(link))


def links_of(tokens: Sequence[int], root: bytes = ROOT) -> list[Link]:
    return list(chain(root, tuple(tokens), BLOCK))


@contextmanager
def shared(num_slots: int, num_segments: int = 1) -> Iterator[list[str]]:
    """Paths of fresh segments."""
    memories = [SharedMemory(segment_bytes(num_slots)) for _ in range(num_segments)]
    try:
        yield [memory.path for memory in memories]
    finally:
        for memory in memories:
            memory.close()


@contextmanager
def machine(num_slots: int, num_engines: int = 2, colds: Sequence[ColdTier | None] | None = None) -> Iterator[list[LowerTiers]]:
    """The lower tiers of several engines that share memory."""
    with shared(num_slots, num_engines) as paths:
        tiers = []
        for number, path in enumerate(paths):
            host = HostTier.attach(path, [other for other in paths if other != path], PAYLOAD_BYTES)
            tiers.append(LowerTiers(host, colds[number] if colds else None, BLOCK))
        yield tiers
        for tier in tiers:
            tier.close()
