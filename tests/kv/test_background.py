"""Calls are made in order on one other thread, and none fails unheard."""

import logging
import threading

import pytest

from plait.kv.background import Background


def test_calls_are_made_in_order_elsewhere() -> None:
    background, made = Background("test"), list[tuple[int, int]]()
    for number in range(20):
        background.submit(lambda number: made.append((number, threading.get_ident())), number)
    background.flush()
    assert [number for number, _ in made] == list(range(20))
    assert len({thread for _, thread in made} - {threading.get_ident()}) == 1
    background.close()


def test_failed_call_is_logged_and_the_next_is_made(caplog: pytest.LogCaptureFixture) -> None:
    background, made = Background("test"), list[int]()
    with caplog.at_level(logging.ERROR):
        background.submit(int, "no number")
        background.submit(made.append, 1)
        background.flush()
    assert made == [1]
    assert "invalid literal" in caplog.text
    background.close()
