"""Settings of the whole suite."""

import gc

from hypothesis import settings

settings.register_profile("plait", deadline=None)  # These machines are shared: time limits of single examples say nothing.
settings.load_profile("plait")

gc.disable()  # Until all tests are collected: what is made meanwhile stays, and no collection has to look through it.


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
