"""A store that may hang or be down, made safe to ask: every call ends in time, and a store that is down is left alone for a while.

- A call runs in a thread of its own; whoever asked gets TimeoutError when it takes too long, and the thread is left behind.
- After a call that took too long, or `MAX_FAILURES` that failed in a row, the store is off: calls fail at once. After `retry_s`,
  and once no call hangs any more, one call tries again; if it succeeds the store is back.
- A store that is full is not down.
"""

import errno
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from plait.kv.block_store import BlockStore
from plait.kv.keys import Key

RETRY_S = 5.0
MAX_FAILURES = 3
CLOSE_S = 5.0

T = TypeVar("T")
log = logging.getLogger(__name__)


class GuardedStore:
    """`open_store` may fail or hang like any call; it is begun at once, and again by the first call after a failure."""

    def __init__(
        self,
        name: str,
        open_store: Callable[[], BlockStore],
        timeout_s: float,
        retry_s: float = RETRY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.timeout_s, self._open_store, self._retry_s, self._clock = name, timeout_s, open_store, retry_s, clock
        self._lock = threading.Lock()
        self._hanging: set[Future[object]] = set()
        self._num_failures = 0
        self._off_until_s: float | None = None
        """None: it is on."""
        self._opening = _start(open_store)

    @property
    def is_on(self) -> bool:
        with self._lock:
            return self._off_until_s is None

    # ---- as a store

    def get(self, key: Key) -> bytes | None:
        return self._ask(lambda store: store.get(key))

    def put(self, key: Key, data: bytes) -> None:
        self._ask(lambda store: store.put(key, data))

    def remove(self, key: Key) -> None:
        self._ask(lambda store: store.remove(key))

    @property
    def used_bytes(self) -> int:
        return self._opening.result().used_bytes if self._is_open else 0

    def close(self) -> None:
        """A store that hangs is left as it is."""
        if self._is_open and not self._hanging:
            try:
                self._in_time(_start(self._opening.result().close), CLOSE_S)
            except OSError as error:
                log.warning("the store %s could not be closed: %s", self.name, error)

    @property
    def _is_open(self) -> bool:
        return self._opening.done() and self._opening.exception() is None

    # ----

    def _ask(self, call: Callable[[BlockStore], T]) -> T:
        self._check_on()
        try:
            store = self._in_time(self._opened(), self.timeout_s)
            answer = self._in_time(_start(lambda: call(store)), self.timeout_s)
        except OSError as error:
            self._failed(error)
            raise
        self._worked()
        return answer

    def _check_on(self) -> None:
        """OSError while the store is off. The first call after that time goes through, and no other until it has ended."""
        with self._lock:
            if self._off_until_s is None:
                return
            now_s = self._clock()
            if self._hanging or now_s < self._off_until_s:
                raise OSError(errno.EHOSTDOWN, f"the store {self.name} is off")
            self._off_until_s = now_s + self._retry_s + self.timeout_s

    def _opened(self) -> Future[BlockStore]:
        with self._lock:
            if self._opening.done() and self._opening.exception() is not None:
                self._opening = _start(self._open_store)
            return self._opening

    def _in_time(self, future: Future[T], timeout_s: float) -> T:
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if not future.done():
                self._hanging.add(future)  # type: ignore[arg-type]
                future.add_done_callback(self._hanging.discard)
            raise TimeoutError(errno.ETIMEDOUT, f"no answer within {timeout_s:g} s") from None

    def late(self) -> None:
        """Answers came, but too slowly to be of use."""
        self._failed(TimeoutError(errno.ETIMEDOUT, f"what was asked for took longer than {self.timeout_s:g} s"))

    def _failed(self, error: OSError) -> None:
        if error.errno == errno.ENOSPC:
            return
        with self._lock:
            self._num_failures += 1
            was_on = self._off_until_s is None
            if was_on and self._num_failures < MAX_FAILURES and not isinstance(error, TimeoutError):
                return
            self._off_until_s = self._clock() + self._retry_s
        if was_on:
            log.warning(
                "the store %s is off, and asked again in %g s: %s. What it has is computed", self.name, self._retry_s, error
            )

    def _worked(self) -> None:
        with self._lock:
            was_on, self._off_until_s, self._num_failures = self._off_until_s is None, None, 0
        if not was_on:
            log.warning("the store %s is back", self.name)


def _start(call: Callable[[], T]) -> Future[T]:
    """In a thread that nobody waits for when the process ends."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="kv-store").start()
    return future
