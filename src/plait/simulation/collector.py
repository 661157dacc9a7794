"""Python's collector of cycles, while a simulation runs: events are many, and hardly any is in a cycle."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (20_000, 50, 100)
"""Objects more than freed before the youngest are looked through, and how often that before older ones are. Memory stays as it is."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Also as a decorator. What was set before comes back."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
