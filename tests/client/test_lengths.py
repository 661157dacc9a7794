"""A run that begins with what another start has learnt of lengths estimates better, and trains the same bits."""

import asyncio
import shutil
from pathlib import Path

import pytest

from plait.client.runs import drive, open_run
from plait.cluster import worker
from plait.config.load import effective_toml
from plait.config.run import RunSettings
from plait.models.invariance import InvarianceReport
from plait.observe.events import AnyEvent, RunStarted
from plait.rollout.context_scheduler import ContextScheduler
from plait.state.rundir import RunDirectory
from plait.tasks.driver import RunDriver
from plait.tasks.own_compute import OwnCompute
from tests.runs import digests, tiny_settings, tiny_task

FILE = "kv-lengths.msgpack"


def carry_out(settings: RunSettings, directory: RunDirectory) -> tuple[int, float]:
    """Prompts that were known at the start, and the mean error of estimates."""
    drivers, known = list[RunDriver](), list[int]()

    def scheduler() -> ContextScheduler:
        compute = drivers[0].compute
        assert isinstance(compute, OwnCompute)
        assert isinstance(compute.rollout.scheduler, ContextScheduler)
        return compute.rollout.scheduler

    def on_event(event: AnyEvent) -> None:
        if isinstance(event, RunStarted):
            known.append(len(scheduler().history))

    with open_run(settings, directory, resume=False) as run:
        run.listeners.append(on_event)
        assert asyncio.run(drive(settings, directory, run, drivers.append)) == "done"
    return known[0], scheduler().errors.mean_estimate


def test_lengths_outlive_a_run_and_change_no_bit_of_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "self_test", lambda *_: InvarianceReport(True, "as told"))  # Threads as workers: it is theirs too.
    settings = tiny_settings(
        tmp_path, tiny_task("a", groups_per_step=3, sampling={"max_new_tokens": 24, "stop_strings": ["a", "e", "o", "1"]}),
        workers={"layout": "shared", "executor": "thread", "environment_processes": 1},
    )  # fmt: skip
    first, second = (RunDirectory.create(tmp_path / "runs", name, effective_toml(settings)) for name in ("first", "second"))
    num_known, error = carry_out(settings, first)
    assert num_known == 0
    shutil.copyfile(first.path / FILE, second.path / FILE)
    num_known, error_with_history = carry_out(settings, second)
    assert num_known == 9, "three questions in each of three steps"
    assert error_with_history < error
    assert digests(second, "a") == digests(first, "a")
