"""Freed memory is kept, and systems without the call are left alone."""

import subprocess
import sys

import pytest

from plait.engine.allocator import keep_freed_memory

PROGRAM = """
import resource, torch
from plait.engine.allocator import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        parts = [torch.ones(2 << 20) for _ in range(6)]
        del parts
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
assert keep_freed_memory()
faults()
print(faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_pages_freed_are_met_again() -> None:
    """48 MB ten times over are 120 000 pages."""
    if not keep_freed_memory():
        pytest.skip("no mallopt here")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=240)
    assert int(done.stdout) < 1000


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory()
