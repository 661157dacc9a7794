"""The tiers below the device, as one: blocks are found wherever they lie, go down when room is needed, and come up ahead of use.

- A block is stored in the host tier when its chunk ends. If it must leave while it is expected, it goes to the cold tier.
- What a waiting chunk will need of the cold tier is fetched into the host tier meanwhile.
- Whatever cannot be found, read or written is missing, and is counted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from plait.kv.background import Background
from plait.kv.block_record import BlockRecord, Payload
from plait.kv.chain import Link, chain, next_links
from plait.kv.cold_tier import ColdTier
from plait.kv.counters import KvCounters
from plait.kv.host_tier import HostTier
from plait.kv.keys import Key
from plait.kv.segment import Rank


class LowerTiers:
    def __init__(self, host: HostTier, cold: ColdTier | None, block_tokens: int) -> None:
        self.host, self.cold, self._block_tokens = host, cold, block_tokens
        self._reader = Background("kv-read")
        self.counters = KvCounters(host=host.counters)
        if cold is not None:
            self.counters.cold = cold.counters

    # ---- finding

    def find(self, parent: Key, tokens: Sequence[int], start: int) -> Iterator[BlockRecord]:
        """Stored blocks of `tokens` from position `start`, where a block begins, right after `parent`, as far as they reach."""
        num_moved = 0
        while start < len(tokens):
            record, is_moved = self._next(parent, tokens, start)
            if record is None:
                break
            num_moved += record.link.num_tokens if is_moved else 0
            yield record
            parent, start = record.link.key, record.link.end
            if record.link.num_tokens < self._block_tokens:
                break
        self.counters.moves += num_moved > 0
        self.counters.moved_tokens += num_moved

    def _next(self, parent: Key, tokens: Sequence[int], start: int) -> tuple[BlockRecord | None, bool]:
        """The longest block that is of use; in the cold tier only the one that is wanted most."""
        links = list(next_links(parent, tokens, self._block_tokens, start))
        record, is_moved = self._in_host(links[:1])
        if record is None:
            record = self._in_cold(links[0])
        if record is None:
            record, is_moved = self._in_host(links[1:])
        return record, is_moved

    def _in_host(self, links: Iterable[Link]) -> tuple[BlockRecord | None, bool]:
        counters = self.counters.host
        for link in links:
            record, is_moved = self.host.read(link.key)
            if record is not None and record.link == link:
                counters.hits += 1
                counters.hit_tokens += link.num_tokens
                return record, is_moved
        counters.misses += 1
        return None, False

    def _in_cold(self, link: Link) -> BlockRecord | None:
        if self.cold is None:
            return None
        record, counters = self.cold.get(link.key), self.cold.counters
        if record is None or record.link != link or len(record.payload) != self.host.payload_bytes:
            counters.misses += 1
            return None
        counters.hits += 1
        counters.hit_tokens += link.num_tokens
        return record

    def expect(self, parent: Key, tokens: tuple[int, ...], start: int) -> None:
        """Bring up what the cold tier has of these tokens, on another thread."""
        if self.cold is not None and start < len(tokens):
            self._reader.submit(self._fetch, self.cold, list(chain(parent, tokens, self._block_tokens, start)))

    def _fetch(self, cold: ColdTier, links: Sequence[Link]) -> None:
        for link in links:
            if self.host.link(link.key) is not None:
                continue
            record = cold.get(link.key)
            if record is None or record.link != link or len(record.payload) != self.host.payload_bytes:
                return
            self._put(record, Rank.EXPECTED)
            self.counters.prefetched += 1

    # ---- storing

    def store(self, links: Iterable[Link], payload_of: Callable[[Link], Payload], rank: Rank) -> None:
        """Note that a sequence's blocks were used, and store those that are not here."""
        for link in links:
            if not self.host.mark(link.key, rank):
                self._put(BlockRecord(link, payload_of(link)), rank)

    def _put(self, record: BlockRecord, rank: Rank) -> None:
        evicted = self.host.put(record, rank)
        if evicted is not None and self.cold is not None:
            self.cold.put_later(evicted)

    def release(self, links: Iterable[Link], prompt_tokens: int) -> None:
        """Nobody will go on from these blocks. Those of the prompt may be of use to others, and stay until room is needed."""
        released = [link for link in links if link.end > prompt_tokens]
        for link in released:
            self.counters.host.released += self.host.mark(link.key, Rank.RELEASED)
        if self.cold is not None and released:
            self.cold.remove_later([link.key for link in released])

    def path_to(self, end: Key) -> Iterator[Link]:
        """The stored blocks of a sequence, from its last upwards, as far as they are here."""
        link = self.host.link(end)
        while link is not None:
            yield link
            link = self.host.link(link.parent)

    # ----

    def measure(self) -> None:
        """Bring the counters of bytes up to date."""
        self.counters.host.used_bytes = self.host.used_bytes
        if self.cold is not None:
            self.counters.cold.used_bytes = self.cold.used_bytes

    def flush(self) -> None:
        """Wait for transfers that were started."""
        self._reader.flush()
        if self.cold is not None:
            self.cold.flush()

    def close(self) -> None:
        self._reader.close()
        if self.cold is not None:
            self.cold.close()
        self.host.close()
