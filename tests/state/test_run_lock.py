"""Who has a run, and who only asks: told apart however slow anybody is. (`test_rundir` has a holder that is killed.)"""

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from plait.state import run_lock
from plait.state.run_lock import RunLock, lock_holder
from plait.types.errors import StateError

READER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
print("asks", flush=True)
sys.stdin.read()
"""
IDLE = "import sys; print('up', flush=True); sys.stdin.read()"


class Clock:
    """Passes only while somebody waits, a tenth of a second at a time; then `happens`, once, after `after_s`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after_s: float, happens: Callable[[], None]) -> None:
        self._now_s, self._after_s, self._happens = 0.0, after_s, happens
        self.has_happened = False
        monkeypatch.setattr(run_lock, "time", SimpleNamespace(monotonic=lambda: self._now_s, sleep=self._sleep))

    def _sleep(self, _: float) -> None:
        self._now_s += 0.1
        if self._now_s > self._after_s and not self.has_happened:
            self.has_happened = True
            self._happens()


def process(program: str, *arguments: str, keeps: tuple[int, ...] = ()) -> "subprocess.Popen[bytes]":
    """Once it has said that it is there; it ends with its input."""
    started = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=keeps
    )
    assert started.stdout is not None
    assert started.stdout.readline()
    return started


def test_a_reader_that_is_slow_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    path.touch()
    reader = process(READER, str(path))
    clock = Clock(monkeypatch, 5.0, lambda: reader.__exit__(None, None, None))
    with RunLock(path):
        assert clock.has_happened
        assert lock_holder(path) == os.getpid()


def test_a_reader_that_is_stopped_for_ever_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    path.touch()
    Clock(monkeypatch, 1000.0, lambda: None)
    with process(READER, str(path)), pytest.raises(StateError, match="in use by another process"):
        RunLock(path)


def test_who_is_refused_has_shut_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether there is a holder is asked under the same lock."""
    path, seen = tmp_path / "lock", list[int | None]()
    Clock(monkeypatch, 0.0, lambda: seen.append(lock_holder(path)))
    with RunLock(path) as held, pytest.raises(StateError, match=f"in use by process {os.getpid()}"):
        RunLock(path)
    assert seen == [os.getpid()]
    held.release()
    assert lock_holder(path) is None


def test_a_child_with_a_copy_of_the_descriptor_holds_nothing(tmp_path: Path) -> None:
    """As every child is between fork and exec."""
    path = tmp_path / "lock"
    lock = RunLock(path)
    with process(IDLE, keeps=(lock._descriptor,)):
        lock.release()
        assert lock_holder(path) is None
        with RunLock(path):
            pass


def test_of_a_run_that_is_made_anew_one_process_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, others = tmp_path / "lock", list[RunLock]()
    first = RunLock(path)

    def make_anew() -> None:
        path.unlink()
        others.append(RunLock(path))
        first.release()

    Clock(monkeypatch, 0.0, make_anew)
    with pytest.raises(StateError, match="in use by process"):
        RunLock(path)
    others[0].release()


def test_of_a_run_that_is_removed_nobody_has_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    first = RunLock(folder / "lock")

    def remove() -> None:
        first.path.unlink()
        folder.rmdir()
        first.release()

    Clock(monkeypatch, 0.0, remove)
    with pytest.raises(StateError, match="no folder"):
        RunLock(first.path)


def test_of_many_that_begin_at_once_one_has_it(tmp_path: Path) -> None:
    path, begin, got = tmp_path / "lock", threading.Barrier(8), list[RunLock | None]()

    def take() -> None:
        begin.wait(60)
        try:
            got.append(RunLock(path))
        except StateError:
            got.append(None)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    [holder] = [lock for lock in got if lock is not None]
    assert len(got) == 8
    descriptor = os.open(path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(descriptor)
    holder.release()
