"""A store that hangs, fails or cannot be opened costs nobody more than the limit, and comes back when it answers again."""

import errno
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from plait.kv.guarded_store import MAX_FAILURES, GuardedStore

KEY = b"k" * 16
LONG_S = 60.0
"""A limit that only a call that hangs comes to."""


class Patient:
    """A store to which everything can happen."""

    used_bytes = 7

    def __init__(self) -> None:
        self.held, self.error, self.num_calls, self.is_closed = threading.Event(), 0, 0, False
        self.held.set()

    def get(self, key: bytes) -> bytes | None:
        self.num_calls += 1
        assert self.held.wait(2 * LONG_S)
        if self.error:
            raise OSError(self.error, "no luck")
        return b"data"

    def put(self, key: bytes, data: bytes) -> None:
        self.get(key)

    def remove(self, key: bytes) -> None:
        self.get(key)

    def close(self) -> None:
        self.is_closed = True


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def inner() -> Iterator[Patient]:
    store = Patient()
    yield store
    store.held.set()


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


def test_a_call_that_hangs_ends_in_time_and_nobody_waits_again(inner: Patient, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    store = GuardedStore("x", lambda: inner, LONG_S, retry_s=5.0, clock=clock)
    assert store.get(KEY) == b"data"
    inner.held.clear()
    store.timeout_s = 0.05
    begin_s = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        store.get(KEY)
    assert time.monotonic() - begin_s < LONG_S
    store.timeout_s = LONG_S
    num_calls = inner.num_calls
    for now_s in (1.0, 5.1, 1000.0):
        clock.now_s = now_s
        with pytest.raises(OSError, match="is off"):  # The call still hangs: there is never a second.
            store.put(KEY, b"")
    assert inner.num_calls == num_calls
    store.close()
    assert not inner.is_closed
    inner.held.set()
    until(lambda: not store._hanging)
    assert not store.is_on
    assert store.get(KEY) == b"data"
    assert store.is_on
    store.close()
    assert inner.is_closed
    assert [record.message[:22] for record in caplog.records] == ["the store x is off, an", "the store x is back"]


def test_it_is_asked_again_by_one_call_at_a_time(inner: Patient) -> None:
    clock = Clock()
    store = GuardedStore("x", lambda: inner, LONG_S, retry_s=5.0, clock=clock)
    inner.error = errno.EIO
    for _ in range(MAX_FAILURES):
        with pytest.raises(OSError, match="no luck"):
            store.remove(KEY)
    clock.now_s = 4.9
    with pytest.raises(OSError, match="is off"):
        store.get(KEY)
    clock.now_s = 5.0
    with pytest.raises(OSError, match="no luck"):
        store.get(KEY)
    with pytest.raises(OSError, match="is off"):
        store.get(KEY)
    clock.now_s, inner.error = 10.0, 0
    store.put(KEY, b"")
    assert store.is_on


def test_a_full_store_and_a_single_failure_do_not_turn_it_off(inner: Patient) -> None:
    store = GuardedStore("x", lambda: inner, LONG_S)
    inner.error = errno.ENOSPC
    for _ in range(2 * MAX_FAILURES):
        with pytest.raises(OSError, match="no luck"):
            store.put(KEY, b"")
    for _ in range(MAX_FAILURES):
        inner.error = errno.EIO
        for _ in range(MAX_FAILURES - 1):
            with pytest.raises(OSError, match="no luck"):
                store.get(KEY)
        inner.error = 0
        assert store.get(KEY) == b"data"
    assert store.is_on
    assert store.used_bytes == 7


def test_it_is_opened_at_once_and_again_after_a_failure(inner: Patient) -> None:
    opened: list[float] = []
    clock = Clock()

    def open_store() -> Patient:
        opened.append(clock.now_s)
        if len(opened) < 3:
            raise OSError(errno.ECONNREFUSED, "nobody there")
        return inner

    store = GuardedStore("x", open_store, LONG_S, retry_s=1.0, clock=clock)
    until(store._opening.done)
    assert store.used_bytes == 0
    with pytest.raises(OSError, match="nobody there"):
        store.get(KEY)
    assert store.get(KEY) == b"data"
    assert len(opened) == 3
