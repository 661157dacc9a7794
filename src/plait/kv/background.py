"""One thread that does what it is told in order, beside the engine."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

log = logging.getLogger(__name__)


class Background:
    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)

    def submit(self, call: Callable[..., object], *arguments: Any) -> None:
        """An error of the call is logged: nobody waits for it."""
        self.start(call, *arguments).add_done_callback(_log_error)

    def start(self, call: Callable[..., object], *arguments: Any) -> "Future[object]":
        """For somebody who waits for it, or cancels it before its turn."""
        return self._thread.submit(call, *arguments)

    def flush(self) -> None:
        """Wait until all that was submitted is done."""
        self._thread.submit(lambda: None).result()

    def close(self) -> None:
        """Wait for what is being done; drop the rest."""
        self._thread.shutdown(cancel_futures=True)


def _log_error(future: Future[object]) -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None:
        log.error("a transfer between cache tiers failed", exc_info=error)
