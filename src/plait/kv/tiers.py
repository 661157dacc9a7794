"""The tiers below the device, as one: blocks are found wherever they lie, go down when room is needed, and come up ahead of use.

- A block is stored in the host tier when its chunk ends. If it must leave while it is expected, it goes to the cold tier.
- It is put into the store between nodes, if there is one, as soon as it is stored here, for engines that read no memory of ours.
- What a waiting chunk will need of the cold tier is fetched into the host tier meanwhile. Of the store, and where a pull is asked
  for, it comes before the chunk starts (`Pull`): nobody reads there while others decode.
- Whatever cannot be found, read or written is missing, and is counted.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from plait.kv.background import Background
from plait.kv.block_log import DISK, HOST, STORE, BlockLog
from plait.kv.block_record import BlockRecord, Payload
from plait.kv.chain import Link, chain, next_links
from plait.kv.cold_tier import ColdTier
from plait.kv.counters import KvCounters
from plait.kv.host_tier import HostTier, clock_us
from plait.kv.keys import Key
from plait.kv.pulls import PATIENCE_S, TIMEOUT_S, Pull, Pulls
from plait.kv.segment import Rank
from plait.kv.store_tier import StoreTier


class LowerTiers:
    def __init__(self, host: HostTier, cold: ColdTier | None, block_tokens: int, store: StoreTier | None = None) -> None:
        self.host, self.cold, self.far, self._block_tokens = host, cold, store, block_tokens
        self._reader = Background("kv-read")
        has_below = cold is not None or store is not None
        self._pulls = Pulls(self._pull, store.timeout_s if store is not None else TIMEOUT_S) if has_below else None
        self.counters = KvCounters(host=host.counters)
        if cold is not None:
            self.counters.cold = cold.counters
        if store is not None:
            self.counters.store = store.counters

    def tell(self) -> list[BlockLog]:
        """Logs of what comes to each tier from now on, and goes from it."""
        tiers = {HOST: self.host, DISK: self.cold, STORE: self.far}
        logs = []
        for name, tier in tiers.items():
            if tier is not None:
                logs.append(BlockLog(name))
                tier.tell(logs[-1])
        return logs

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
        links = next_links(parent, tokens, self._block_tokens, start)
        wanted = next(links)
        record, is_moved = self._in_host([wanted])
        if record is None:
            record = self._in_cold(wanted)
        if record is None:
            record, is_moved = self._in_host(links)
        return record, is_moved

    def _in_host(self, links: Iterable[Link]) -> tuple[BlockRecord | None, bool]:
        for link in links:
            record, is_moved = self.host.read(link.key)
            if record is not None and record.link == link:
                is_pulled = self.far is not None and self.far.took(link.key)
                counters = self.counters.store if is_pulled else self.counters.host
                counters.hits += 1
                counters.hit_tokens += link.num_tokens
                return record, is_moved or is_pulled
        self.counters.host.misses += 1
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

    def expect(
        self, parent: Key, tokens: tuple[int, ...], start: int, is_stored: bool = False, *, is_below: bool = False
    ) -> Pull | None:
        """Bring up what lies below the host tier of these tokens, on another thread. What is to be waited for, if anything.

        `is_stored`: some engine has had all of them, perhaps a moment ago. `is_below`: some are known to lie below the host tier.
        """
        if start >= len(tokens) or (self.cold is None and not self._is_far_on):
            return None
        links = list(chain(parent, tokens, self._block_tokens, start))
        if self._pulls is None or not (is_below or self._is_far_on):
            self._reader.submit(self._fetch, links)
        elif any(self.host.link(link.key) is None for link in links):
            return self._pulls.start(links, PATIENCE_S if is_stored else 0.0)
        return None

    @property
    def _is_far_on(self) -> bool:
        """While it is off it is asked by what is written, for which nobody waits."""
        return self.far is not None and self.far.is_on

    def _fetch(self, links: Sequence[Link], pull: Pull | None = None) -> bool:
        """As far as they are there; False if time ran out."""
        for link in links:
            if pull is not None and pull.is_over:
                return False
            if self.host.link(link.key) is not None:
                continue
            record = self._from_below(link)
            while record is None and pull is not None and self._is_far_on and pull.looks_again():
                record = self._from_below(link)
            if record is None:
                self.counters.store.misses += pull is not None and self.far is not None
                break
            self._put(record, Rank.EXPECTED, clock_us())
            self.counters.prefetched += 1
            if pull is not None:
                pull.num_bytes += len(record.payload)
        return True

    def _from_below(self, link: Link) -> BlockRecord | None:
        for tier in (self.cold, self.far if self._is_far_on else None):
            record = tier.get(link.key) if tier is not None else None
            if record is not None and record.link == link and len(record.payload) == self.host.payload_bytes:
                return record
        return None

    def _pull(self, links: Sequence[Link], pull: Pull) -> None:
        begin_s = time.monotonic()
        if not self._fetch(links, pull) and self.far is not None:
            self.far.gave_up(time.monotonic() - begin_s)
        self.counters.pulls += pull.num_bytes > 0
        self.counters.pulled_bytes += pull.num_bytes

    # ---- storing

    def store(self, links: Iterable[Link], payload_of: Callable[[Link], Payload], rank: Rank) -> int:
        """Note that a sequence's blocks were used, and store those that are not here; the stamp to release them with."""
        stamp_us = clock_us()
        for link in links:
            if not self.host.mark(link.key, rank, stamp_us):
                record = BlockRecord(link, payload_of(link))
                self._put(record, rank, stamp_us)
                if self.far is not None:
                    self.far.put_later(record)
        return stamp_us

    def _put(self, record: BlockRecord, rank: Rank, now_us: int) -> None:
        evicted = self.host.put(record, rank, now_us)
        if evicted is not None and self.cold is not None:
            self.cold.put_later(evicted)

    def release(self, links: Sequence[Link], prompt_tokens: int, stamp_us: int | None = None, *, went_on: bool = False) -> None:
        """Nobody will go on from these blocks, in order from the first: free those that nobody has used after the stamp.

        Without a stamp it is when the last of them was used. Those of the prompt may be of use to others, and stay until room
        is needed. Whoever else had used a block before the stamp loses its claim, not the block, until its own next chunk ends.
        Where the sequence `went_on` elsewhere, what lies below this machine's memory is left to whoever goes on.
        """
        if stamp_us is None:
            stamp_us = self.host.used_us(links[-1].key) if links else None
        released = [link.key for link in links if link.end > prompt_tokens]
        if stamp_us is not None:
            freed = [key for key in released if self.host.release(key, stamp_us)]
            self.counters.host.released += len(freed)
        unused = [] if went_on else [key for key in released if self._is_unused(key)]
        for tier in self._below if unused else ():
            tier.remove_later(unused)

    @property
    def _below(self) -> list[ColdTier]:
        return [tier for tier in (self.cold, self.far) if tier is not None]

    def _is_unused(self, key: Key) -> bool:
        return self.host.rank(key) <= Rank.RELEASED

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
        for tier in self._below:
            tier.counters.used_bytes = tier.used_bytes

    def flush(self) -> None:
        """Wait for transfers that were started."""
        self._reader.flush()
        if self._pulls is not None:
            self._pulls.flush()
        for tier in self._below:
            tier.flush()

    def close(self) -> None:
        self._reader.close()
        if self._pulls is not None:
            self._pulls.close()
        for tier in self._below:
            tier.close()
        self.host.close()
