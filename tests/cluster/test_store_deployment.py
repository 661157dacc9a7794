"""Engines that share no memory, with a store between them that is damaged and taken away in mid-run: the tokens stay the same."""

import asyncio
import contextlib
import logging
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from plait.cluster import kv_tiers
from plait.cluster.executors.choice import make_executor
from plait.cluster.kv_tiers import STORE_FOLDER
from plait.cluster.messages import ROLLOUT, Configure
from plait.cluster.rollout_deployment import RolloutDeployment
from plait.cluster.workers import MakeWorkers, Workers
from plait.config.run import RunSettings
from plait.kv import guarded_store
from plait.rollout.context_scheduler import ContextScheduler
from plait.rollout.engine_state import EngineState
from plait.rollout.group import Sample
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Placement
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams
from plait.types.trajectory import Segment
from tests.kv.mooncake import Master, running_master
from tests.runs import tiny_settings, tiny_task

BASE = PolicyVersion("local", "base", 0)
NUM_REQUESTS, NUM_TOKENS = 10, 48
Disturb = Callable[[int], None]
THREADS, PROCESSES = {"executor": "thread"}, {"executor": "process"}


class Wandering(ContextScheduler):
    """Never two chunks in a row at one engine, where there is another."""

    def _start(self, sample: Sample, open_engines: Sequence[EngineState], engines: Sequence[EngineState]) -> Placement | None:
        last = self.router._last.get(sample.request_id, ("", 0))[0]
        others = [engine for engine in open_engines if engine.name != last or len(engines) == 1]
        return super()._start(sample, others, engines)


@pytest.fixture(autouse=True)
def engines_on_several_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_tiers, "are_apart", lambda settings: True)


def engines_only(settings: RunSettings, folder: Path) -> MakeWorkers:
    """Nobody trains here."""

    def make(configured: Sequence[Configure], *others: Any) -> Workers:
        engines = [one for one in configured if ROLLOUT in one.roles]
        return Workers(engines, *others, executor=make_executor(settings.workers, engines, folder))

    return make


@asynccontextmanager
async def deployment(
    folder: Path, num_engines: int, workers: dict[str, Any], engine: dict[str, Any], scheduler: ContextScheduler | None = None
) -> AsyncIterator[RolloutDeployment]:
    workers = {"rollout_engines": num_engines, "environment_processes": 1} | workers
    sizes = {"max_rows": 2, "slot_tokens": 512, "pool_tokens": 512, "chunk_tokens": 12, "adaptive_concurrency": False}
    settings = tiny_settings(folder, tiny_task("a"), workers=workers, engine=sizes | engine)
    listener = Mock()
    run, path = folder / "run", settings.model.path
    made = RolloutDeployment(settings, path, 1, listener, scheduler or Wandering(), run / "kv", engines_only(settings, run))
    await made.start()
    try:
        yield made
        listener.on_worker_lost.assert_not_called()
    finally:
        await made.close()


async def generate(rollouts: RolloutDeployment, disturb: Disturb = lambda num_tokens: None) -> list[Segment]:
    """Two groups; `disturb` hears how many tokens have come back."""
    prompts = [tuple(range(5 + n, 25 + n)) for n in range(2)]
    wanted = [
        GenerationRequest(f"r{n}", "a", BASE, None, prompts[n % 2], SamplingParams(NUM_TOKENS, seed=n), group=f"g{n % 2}")
        for n in range(NUM_REQUESTS)
    ]
    num_tokens = 0

    def heard(result: Any) -> None:
        nonlocal num_tokens
        num_tokens += len(result.tokens)
        disturb(num_tokens)

    for request in wanted:
        request.on_chunk = heard
    return await asyncio.gather(*(rollouts.rollout.generate(request) for request in wanted))


def run(
    folder: Path,
    engine: dict[str, Any],
    disturb: Disturb = lambda num_tokens: None,
    num_engines: int = 2,
    workers: dict[str, Any] = THREADS,
) -> tuple[list[Segment], dict[str, float]]:
    """What was generated, and the engines' counters added up."""

    async def main() -> tuple[list[Segment], dict[str, float]]:
        async with deployment(folder, num_engines, workers, engine) as rollouts:
            segments = await generate(rollouts, disturb)
            while len(rollouts.engine_samples) < num_engines or any(told.num_rows for told in rollouts.engine_samples):
                await asyncio.sleep(0.02)
            assert sum(rollouts.rollout.num_moves.values()) >= NUM_REQUESTS * (num_engines - 1)
            samples = rollouts.engine_samples
        names = {name for sample in samples for name in sample.counters}
        return segments, {name: sum(sample.counters.get(name, 0.0) for sample in samples) for name in names}

    return asyncio.run(asyncio.wait_for(main(), 120))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Segment]:
    """What one engine without lower tiers gives."""
    return run(tmp_path_factory.mktemp("plain"), {}, num_engines=1)[0]


FILES: dict[str, Any] = {"host_tokens": 4096, "store": {"kind": "file", "tokens": 16384, "timeout_s": 20.0}}


def test_engines_on_two_nodes_go_on_with_each_others_blocks(tmp_path: Path, plain: list[Segment]) -> None:
    segments, counts = run(tmp_path, FILES)
    assert segments == plain
    assert counts["store_hit_tokens"] > 0, "how much depends on how soon a block is written"
    assert counts["store_read_bytes"] > 0
    assert counts["store_written_bytes"] > 0
    assert counts["corrupt_blocks"] == counts["store_failures"] == 0
    assert not [path for path in (tmp_path / "run" / "kv").rglob("*") if path.is_file()], "cleared at the end"


def test_a_store_that_is_damaged_and_then_lost_changes_no_token(
    tmp_path: Path, plain: list[Segment], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "run" / "kv" / STORE_FOLDER
    done: list[int] = []
    monkeypatch.setattr(guarded_store, "MAX_FAILURES", 1)

    def disturb(num_tokens: int) -> None:
        if num_tokens >= NUM_REQUESTS * NUM_TOKENS // 4 and not done:
            wait_until_still(store)
            done.append(damage(store))
        if num_tokens >= NUM_REQUESTS * NUM_TOKENS // 2 and len(done) == 1:
            wait_until_still(store)
            done.append(len(list(store.glob("*/*"))))
            store.rename(tmp_path / "away")
            store.write_text("no folder")

    segments, counts = run(tmp_path, FILES, disturb)
    assert segments == plain
    assert len(done) == 2
    assert all(done), "there was something to lose"
    assert counts["corrupt_blocks"] > 0
    assert counts["store_failures"] > 0
    assert sum("is off" in record.message for record in caplog.records if record.levelno == logging.WARNING) == 2


def wait_until_still(store: Path) -> None:
    """Until engines, to whom nobody gives anything meanwhile, have written all that they computed, and something is there."""
    before, found = set[Path](), set(store.glob("*/*"))
    while not found or found != before:
        time.sleep(0.2)
        before, found = found, set(store.glob("*/*"))


def damage(store: Path) -> int:
    """Change a bit in each block."""
    paths = [path for path in store.glob("*/*") if not path.suffix]
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # Freed meanwhile.
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
    return len(paths)


# ---- Mooncake


@pytest.fixture
def master() -> Iterator[Master]:
    with running_master() as master:
        yield master


def mooncake(master: Master) -> dict[str, Any]:
    return {"host_tokens": 4096, "store": {"kind": "mooncake", "tokens": 16384, "address": master.address}}


def test_engines_go_on_with_each_others_blocks_from_mooncake(master: Master, tmp_path: Path, plain: list[Segment]) -> None:
    segments, counts = run(tmp_path, mooncake(master), workers=PROCESSES)
    assert segments == plain
    assert counts["store_hit_tokens"] > 0
    assert counts["store_written_bytes"] > 0


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_mooncakes_master_is_lost_in_mid_run(master: Master, tmp_path: Path, plain: list[Segment], how: str) -> None:
    done: list[subprocess.Popen[bytes]] = []

    def disturb(num_tokens: int) -> None:
        if num_tokens >= NUM_REQUESTS * NUM_TOKENS // 3 and not done:
            done.append(master.process)
            master.kill() if how == "killed" else master.stop()

    segments, counts = run(tmp_path, mooncake(master), disturb, workers=PROCESSES)
    assert segments == plain
    assert counts["store_failures"] > 0
    assert counts["store_hit_tokens"] > 0


def test_a_mooncake_store_that_never_was_there(tmp_path: Path, plain: list[Segment]) -> None:
    pytest.importorskip("mooncake.store", exc_type=ImportError)
    engine = {"host_tokens": 4096, "store": {"kind": "mooncake", "tokens": 16384, "address": "127.0.0.1:9", "timeout_s": 0.3}}
    segments, counts = run(tmp_path, engine, workers=PROCESSES)
    assert segments == plain
    assert counts["store_failures"] > 0
    assert counts["store_hit_tokens"] == 0
