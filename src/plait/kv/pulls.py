"""Blocks that waiting chunks lack, on their way from far away into the host tier, several at a time.

A chunk waits for its pull, at most `timeout_s`; then it starts with what has come, and the rest of the pull is dropped. Blocks that
an engine has stored a moment ago may still be on their way to the store, so a pull can be patient with what it does not find.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from plait.kv.chain import Link
from plait.kv.keys import Key

NUM_THREADS = 4
"""Pulls under way at one time; each reads one block after another."""
TIMEOUT_S = 1.0
"""Longest that a chunk waits where there is no store to say so."""
PATIENCE_S = 0.05
LOOK_S = 0.005
"""A patient pull looks again for what it does not find, for so long in all, so often."""

log = logging.getLogger(__name__)


class Pull:
    """Of one sequence of blocks."""

    def __init__(self, until_s: float, patience_s: float = 0.0) -> None:
        self.until_s, self._patience_s = until_s, patience_s
        self.num_bytes = 0
        """Has come."""
        self._ended = threading.Event()

    @property
    def is_over(self) -> bool:
        """Nothing more is to be waited for."""
        return self._ended.is_set() or time.monotonic() >= self.until_s

    def wait(self, timeout_s: float) -> None:
        """Until it is over, at most so long."""
        self._ended.wait(max(0.0, min(timeout_s, self.until_s - time.monotonic())))

    def looks_again(self) -> bool:
        """Whether to look once more for a block that is not there; if so, a moment later."""
        if self._patience_s <= 0 or self.is_over:
            return False
        self._patience_s -= LOOK_S
        return not self._ended.wait(LOOK_S)

    def end(self) -> None:
        self._ended.set()


class Pulls:
    """`fetch` gets the blocks, on one of the threads, and gives up when the pull is over."""

    def __init__(self, fetch: Callable[[Sequence[Link], Pull], None], timeout_s: float) -> None:
        self._fetch, self._timeout_s = fetch, timeout_s
        self._threads = ThreadPoolExecutor(NUM_THREADS, "kv-pull")
        self._under_way: dict[Key, Pull] = {}
        """By the last block."""

    def start(self, links: Sequence[Link], patience_s: float = 0.0) -> Pull:
        """One pull serves all who want the same blocks at the same time."""
        key = links[-1].key
        known = self._under_way.get(key)
        if known is not None and not known.is_over:
            return known
        pull = self._under_way[key] = Pull(time.monotonic() + self._timeout_s, patience_s)
        self._threads.submit(self._run, links, pull).add_done_callback(lambda future: self._ended(key, pull, future))
        return pull

    def _run(self, links: Sequence[Link], pull: Pull) -> None:
        if not pull.is_over:
            self._fetch(links, pull)

    def _ended(self, key: Key, pull: Pull, future: Future[None]) -> None:
        pull.end()
        if self._under_way.get(key) is pull:
            self._under_way.pop(key, None)
        error = None if future.cancelled() else future.exception()
        if error is not None:
            log.error("a pull of cached blocks failed", exc_info=error)

    def flush(self) -> None:
        """Wait for all that are under way."""
        for pull in list(self._under_way.values()):
            pull.wait(self._timeout_s)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
