"""Settings of the whole suite."""

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import settings

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # Before torch loads: threads that wait leave the cores to others, as in workers.
settings.register_profile("plait", deadline=None)  # These machines are shared: time limits of single examples say nothing.
settings.load_profile("plait")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All modules are imported here, and what they make stays: the collector of cycles need not look through it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
