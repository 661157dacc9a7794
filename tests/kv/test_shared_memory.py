"""Shared memory ends with its maker, whatever happens to it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from plait.kv.shared_memory import PREFIX, SharedMemory, attach

MAKER = """
import sys, time
from plait.kv.shared_memory import SharedMemory
memory = SharedMemory(8192, *sys.argv[1:])
print(memory.path, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("has_file", [False, True], ids=["anonymous", "file"])
def test_maps_are_the_same_memory(has_file: bool, tmp_path: Path) -> None:
    memory = SharedMemory(8192, tmp_path if has_file else None)
    first, second = attach(memory.path), attach(memory.path)
    assert len(first) == 8192
    assert first[:] == bytes(8192)
    first[5:8] = b"abc"
    assert second[5:8] == b"abc"
    path = memory.path
    memory.close()
    assert first[5:8] == b"abc", "still mapped"
    with pytest.raises(OSError, match="No such file"):
        attach(path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("has_file", [False, True], ids=["anonymous", "file"])
def test_nothing_is_left_of_a_killed_maker(has_file: bool, tmp_path: Path) -> None:
    folder = [str(tmp_path)] if has_file else []
    maker = subprocess.Popen([sys.executable, "-c", MAKER, *folder], stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    path = maker.stdout.readline().strip()
    attached = attach(path)
    attached[0:1] = b"x"
    living = SharedMemory(4096, tmp_path)
    assert len(list(tmp_path.glob(f"{PREFIX}*"))) == 1 + has_file, "a living maker's file is left alone"
    os.kill(maker.pid, signal.SIGKILL)
    maker.wait()
    maker.stdout.close()
    assert attached[0:1] == b"x", "who has mapped it keeps it"
    SharedMemory(4096, tmp_path).close()
    assert [str(file) for file in tmp_path.iterdir()] == [living.path]
    living.close()
    with pytest.raises(OSError, match="No such file"):
        attach(path)
