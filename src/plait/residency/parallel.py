"""Calls on several threads, which are waited for."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def for_each(call: Callable[[Item], object], items: Sequence[Item], num_threads: int) -> None:
    """Of each item, in order. Once one has raised no more are begun; the first error is raised when all have ended."""
    if num_threads <= 1 or len(items) <= 1:
        for item in items:
            call(item)
        return
    has_failed = threading.Event()

    def run(item: Item) -> None:
        if not has_failed.is_set():
            try:
                call(item)
            except BaseException:
                has_failed.set()
                raise

    with ThreadPoolExecutor(min(num_threads, len(items)), "plait-parallel") as threads:
        futures = [threads.submit(run, item) for item in items]
    for future in futures:
        future.result()
