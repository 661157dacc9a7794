"""Loading a program's modules while the collector of reference cycles rests.

Modules make some hundred thousand objects that stay. To look through them for garbage while they are made takes a tenth of a
worker's start and a fifth of a server's; and once they are there, it is a pause in each full collection, unless they are left out.
"""

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


def end_loading() -> None:
    """After `gc.disable`, and harmless without it."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
