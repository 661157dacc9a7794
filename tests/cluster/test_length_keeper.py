"""Lengths outlive the process that learnt them, and whatever is wrong with their file harms nobody."""

import asyncio
import logging
from pathlib import Path

import pytest

from plait.cluster import length_keeper
from plait.cluster.length_keeper import LengthKeeper
from plait.rollout.length_estimates import LengthHistory, Siblings
from plait.rollout.length_record import snapshot

KEY = ("ada", "sums", 1)


def learn(history: LengthHistory, *lengths: int) -> None:
    siblings = Siblings()
    for each in lengths:
        siblings.add(each)
    history.add(KEY, siblings)


def loaded(path: Path) -> LengthHistory:
    keeper = LengthKeeper(path, LengthHistory())
    keeper.load()
    return keeper.history


def test_what_was_learnt_is_there_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "lengths.msgpack"

    async def main() -> LengthHistory:
        keeper = LengthKeeper(path, LengthHistory())
        keeper.load()
        await keeper.close()
        assert not path.exists(), "nothing was learnt"
        learn(keeper.history, 10, 30)
        keeper.changed()
        await keeper.close()
        return keeper.history

    history = asyncio.run(main())
    assert snapshot(loaded(path)) == snapshot(history) == [(KEY, 20.0, 30.0)]


def test_it_is_kept_in_time_for_a_controller_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length_keeper, "SAVE_S", 0.05)
    path = tmp_path / "lengths.msgpack"

    async def main() -> None:
        keeper = LengthKeeper(path, LengthHistory())
        for number in range(1, 4):
            learn(keeper.history, number)
            keeper.changed()
            keeper.changed()
            async with asyncio.timeout(120):
                while snapshot(loaded(path)) != snapshot(keeper.history):
                    await asyncio.sleep(0.01)
        assert keeper._timer is None, "with nothing new nothing is written"
        await keeper.close()

    asyncio.run(main())


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_a_file_that_cannot_be_used_is_told_and_replaced(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "lengths.msgpack"
    path.write_bytes(content)

    async def main() -> None:
        keeper = LengthKeeper(path, LengthHistory())
        with caplog.at_level(logging.WARNING):
            keeper.load()
        assert f"expected lengths in {path} are not used: it is damaged" in caplog.text
        learn(keeper.history, 7)
        await keeper.close()

    asyncio.run(main())
    assert snapshot(loaded(path)) == [(KEY, 7.0, 7.0)]


def test_a_file_that_cannot_be_written_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no folder")

    async def main() -> None:
        keeper = LengthKeeper(tmp_path / "file" / "lengths.msgpack", LengthHistory())
        learn(keeper.history, 7)
        await keeper.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "expected lengths are not kept" in caplog.text
