"""Loading a program's modules while the collector of reference cycles rests.

Modules make some hundred thousand objects that stay. To look through them for garbage, while they are made and when the process
ends, takes a third of what it costs to start and end a worker; and in between it is a pause in each full collection.
"""

import atexit
import gc
import importlib
import sys
from types import ModuleType


def load_at_once(name: str) -> ModuleType:
    """Import a program's module. All that this process then holds is left out of collections."""
    if name in sys.modules or not gc.isenabled():
        return importlib.import_module(name)
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        end_loading()


def end_quickly() -> None:
    """When this process ends, it does not look through all its objects once more."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def end_loading() -> None:
    """After `gc.disable`, and harmless without it."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
