"""The actor's own part, without Ray: frames that are delivered again are not taken again."""

import asyncio
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from plait.cluster.executors.carrier import WorkerProgram
from plait.cluster.executors.ray_actor import WorkerActor
from plait.cluster.executors.shared_folder import find_problem, remove_probe, write_probe

PROGRAM = WorkerProgram("echo", "tests.cluster.executors.echo")


async def collected(actor: WorkerActor, num_frames: int) -> list[bytes]:
    frames: list[bytes] = []
    while len(frames) < num_frames:
        more, end = await actor.collect()
        assert not end
        frames += more
    return frames


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=8))
def test_every_frame_is_taken_once(calls: list[tuple[int, int]]) -> None:
    """Each call goes back over some frames that are known and brings some new ones."""

    async def main() -> None:
        actor = WorkerActor(PROGRAM, None)
        assert not (await actor.start()).problem
        sent: list[bytes] = []
        for again, new in calls:
            number = max(0, len(sent) - again)
            sent += [b"frame %d" % n for n in range(len(sent), len(sent) + new)]
            await actor.deliver(number, sent[number:])
        await actor.deliver(len(sent), [b"last"])
        assert await collected(actor, len(sent) + 1) == [*sent, b"last"]
        await actor.end()

    asyncio.run(main())


def test_the_end_is_told_after_the_last_frame() -> None:
    async def main() -> None:
        actor = WorkerActor(PROGRAM, None)
        await actor.start()
        await actor.deliver(0, [b"last", b"raise"])
        assert await collected(actor, 1) == [b"last"]
        frames, end = await actor.collect()
        assert not frames
        assert "ZeroDivisionError: as told" in end

    asyncio.run(main())


def test_a_node_that_does_not_see_the_folder_starts_nothing(tmp_path: Path) -> None:
    probe = write_probe(tmp_path / "data")
    assert find_problem(probe) == ""
    Path(probe.path).write_text("another's", encoding="utf-8")
    assert "has another" in find_problem(probe)
    remove_probe(probe)

    async def main() -> None:
        started = await WorkerActor(PROGRAM, probe).start()
        assert "does not see" in started.problem
        assert str(tmp_path / "data") in started.problem

    asyncio.run(main())
    assert not list((tmp_path / "data").iterdir())
