"""System calls that fail, or kill the process, when their turn comes."""

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from plait.residency import content_file, device_store

CALLS = ("link", "rename", "replace", "fsync", "readv", "open")


class Turn:
    """Counts calls and acts at one of them; `happened` says whether it came to that."""

    def __init__(self, number: int, act: Callable[[str], None]) -> None:
        self.number, self.act, self.seen, self.happened = number, act, 0, ""

    def take(self, call: str) -> None:
        self.seen += 1
        if self.seen == self.number:
            self.happened = call
            self.act(call)


def fail(call: str) -> None:
    if call == "empty":
        raise RuntimeError("injected: not enough memory")
    raise OSError(errno.ENOSPC if call == "write" else errno.EIO, f"injected into {call}")


def kill(call: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def injected(turn: Turn) -> Iterator[None]:
    """Every call of the state manager to the system takes a turn: before it is made, and after."""
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, _wrapped(turn, name, getattr(os, name)))
        patch.setattr(content_file, "_write_all", _wrapped(turn, "write", content_file._write_all))
        patch.setattr(device_store.torch, "empty", _wrapped(turn, "empty", device_store.torch.empty))
        yield


def _wrapped(turn: Turn, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        turn.take(name)
        result = call(*arguments, **keywords)
        if turn.act is kill:
            turn.take(name)
        return result

    return wrapper
