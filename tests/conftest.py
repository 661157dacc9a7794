"""Settings of the whole suite."""

import gc
from collections.abc import Generator

import pytest
from hypothesis import settings

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
