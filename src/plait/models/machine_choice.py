"""What was once measured on this machine and must not change with the next measurement, since bits depend on it.

A choice is kept in Plait's home, in a file of its own, by processor and version of torch. The first process to measure decides for
all; where the home cannot be written each process measures for itself.
"""

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from plait.models.catalogue import plait_home

FOLDER = "machine"


def remembered(name: str, measure: Callable[[], bool]) -> bool:
    """What `measure` said when it was first asked on this machine."""
    path = plait_home() / FOLDER / machine_name() / name
    with suppress(OSError):
        return path.read_text() == "yes"
    choice = measure()
    with suppress(OSError):
        _keep(path, "yes" if choice else "no")
        return path.read_text() == "yes"
    return choice


def _keep(path: Path, text: str) -> None:
    """Unless there is one by now: that one stands."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent) as scratch:
        scratch.write(text)
        scratch.flush()
        with suppress(FileExistsError):
            os.link(scratch.name, path)


def machine_name() -> str:
    """Processor and torch, as the name of a folder."""
    told = f"{platform.machine()} {_processor()} {torch.__version__}"
    return hashlib.blake2b(told.encode(), digest_size=8).hexdigest()


def _processor() -> str:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return platform.processor()
