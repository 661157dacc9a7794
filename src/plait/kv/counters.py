"""What the tiers did, counted since the engine started."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class TierCounters:
    """One tier, one engine. Blocks, unless the name says otherwise."""

    hits: int = 0
    hit_tokens: int = 0
    misses: int = 0
    """Searches that ended here: the next block was not found in this tier."""
    writes: int = 0
    evictions: int = 0
    """Blocks given up for others although nobody had released them."""
    released: int = 0
    corrupt: int = 0
    """Blocks whose bits had changed: taken for missing."""
    failures: int = 0
    """Transfers that could not be made (a full disk, a lost file, a queue that was full)."""
    read_bytes: int = 0
    written_bytes: int = 0
    """Both of disks and stores only, with what blocks carry besides their payload."""
    used_bytes: int = 0
    capacity_bytes: int = 0


@dataclass(slots=True)
class KvCounters:
    """All tiers of one engine. A move is a row that went on with blocks another engine had computed."""

    device: TierCounters = field(default_factory=TierCounters)
    host: TierCounters = field(default_factory=TierCounters)
    cold: TierCounters = field(default_factory=TierCounters)
    """The disk."""
    store: TierCounters = field(default_factory=TierCounters)
    """Between nodes. A block that came from there is a hit of it, once; then it lies in the host tier."""
    moves: int = 0
    moved_tokens: int = 0
    prefetched: int = 0
    """Blocks fetched from disk or store before they were asked for."""
    pulls: int = 0
    """Of chunks that waited for blocks from there, and got some,"""
    pulled_bytes: int = 0
    """so many."""
