"""Whole runs on a tiny model with real worker processes."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait.client.runs import OpenRun, drive, open_run, run_file
from plait.cluster import worker
from plait.config.load import effective_toml
from plait.config.run import RunSettings
from plait.models.invariance import InvarianceReport
from plait.models.tiny import make_tiny_model
from plait.observe.events import EvaluationDone, PhaseSpan, RewardError, RunEnded, TaskStateChanged, WorkerLost, WorkerSpan
from plait.observe.log import read_latest_events
from plait.state.records import list_steps
from plait.state.rundir import RunDirectory
from plait.state.samples import read_samples
from plait.tasks.driver import RunDriver
from plait.types.errors import ConfigError, WorkerFailure
from tests.runs import REWARDS, committed_steps, digests, kill, tiny_settings, tiny_task, worker_pids

THREADS = {"layout": "shared", "executor": "thread", "environment_processes": 1}
"""Where what is proved is not that of processes: no process has to load torch, and the steps are the same."""


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here rests on the self-test of batch invariance. Threads as workers: it is theirs too."""
    monkeypatch.setattr(worker, "self_test", lambda *_: InvarianceReport(True, "as told"))


def new_run(folder: Path, settings: RunSettings) -> RunDirectory:
    return RunDirectory.create(folder / "runs", settings.name, effective_toml(settings))


def run_all(folder: Path, settings: RunSettings) -> RunDirectory:
    directory = new_run(folder, settings)
    run_file(settings, directory, show_progress=False)
    return directory


def test_a_run_of_two_tasks_leaves_steps_samples_spans_and_a_report(tmp_path: Path) -> None:
    tasks = (
        tiny_task("a", evaluation={"questions": 4, "every_steps": 2}),
        tiny_task("b", lora={"rank": 8, "target_modules": ["q_proj"]}),
    )
    directory = run_all(tmp_path, tiny_settings(tmp_path, *tasks))
    events = list(read_latest_events(directory.events))
    assert [step.step for step in committed_steps(directory, "a")] == [1, 2, 3]
    assert [step.step for step in committed_steps(directory, "b")] == [1, 2, 3]
    assert {e.version: e.when for e in events if isinstance(e, EvaluationDone)} == {0: "before", 2: "periodic", 3: "after"}
    assert {e.phase for e in events if isinstance(e, PhaseSpan)} >= {"rollout", "queued", "training", "evaluation"}
    assert {e.worker for e in events if isinstance(e, WorkerSpan)} == {"rollout", "train"}
    assert isinstance(events[-1], RunEnded)
    assert events[-1].status == "done"
    samples = read_samples(directory.samples_file("a", 2))
    assert len(samples) == 8
    assert all(s.policy is not None and s.policy.version == 1 for r in samples for s in r.trajectory.segments if s.is_sampled)
    assert "<html" in directory.report.read_text(encoding="utf-8")[:500].lower()


def test_a_fresh_batch_is_exactly_on_policy(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("a"), tiny_task("b", lora={"rank": 8}), workers=THREADS)
    directory = run_all(tmp_path, settings)
    steps = committed_steps(directory, "a") + committed_steps(directory, "b")
    assert any(step.grad_norm > 0 for step in steps)
    assert {step.ratio_mean for step in steps if step.ratio_mean is not None} == {1.0}
    assert {step.logprob_gap_max for step in steps if step.logprob_gap_max is not None} == {0.0}


def test_co_tenants_do_not_change_a_task(tmp_path: Path) -> None:
    alone = run_all(tmp_path / "alone", tiny_settings(tmp_path, tiny_task("a", steps=4), workers=THREADS))
    others = (tiny_task("b", lora={"rank": 8}), tiny_task("c", steps=6, group_size=2))
    together = run_all(tmp_path / "together", tiny_settings(tmp_path, others[0], tiny_task("a", steps=4), others[1]))
    assert digests(alone, "a") == digests(together, "a")


@pytest.mark.usefixtures("exact")
def test_a_broken_environment_ends_its_task_alone(tmp_path: Path) -> None:
    broken = tiny_task("broken")
    broken["environment"] = broken["environment"] | {"function": f"{REWARDS}:raises", "max_episode_retries": 0}
    directory = new_run(tmp_path, settings := tiny_settings(tmp_path, broken, tiny_task("sound"), workers=THREADS))
    assert run_file(settings, directory, show_progress=False) == "failed"
    events = list(read_latest_events(directory.events))
    states = {e.task: e for e in events if isinstance(e, TaskStateChanged)}
    assert states["broken"].state == "failed"
    assert "every group" in states["broken"].cause
    assert states["sound"].state == "done"
    errors = [e for e in events if isinstance(e, RewardError)]
    assert errors
    assert all("the verifier is broken" in e.error and e.stage == "score" for e in errors)
    assert committed_steps(directory, "broken") == []


@pytest.mark.usefixtures("exact")
def test_groups_whose_verifier_fails_are_dropped_and_counted(tmp_path: Path) -> None:
    task = tiny_task("some", groups_per_step=4)
    task["environment"] = task["environment"] | {"function": f"{REWARDS}:raises_sometimes", "max_episode_retries": 0}
    directory = run_all(tmp_path, tiny_settings(tmp_path, task, workers=THREADS))
    steps = committed_steps(directory, "some")
    assert [step.num_dropped_groups * 4 + step.num_sequences for step in steps] == [16, 16, 16]
    assert any(step.num_dropped_groups for step in steps)


@pytest.mark.usefixtures("exact")
def test_steps_without_any_gradient_advance_the_version_and_change_nothing(tmp_path: Path) -> None:
    task = tiny_task("flat")
    task["environment"] = task["environment"] | {"function": f"{REWARDS}:constant"}
    directory = run_all(tmp_path, tiny_settings(tmp_path, task, workers=THREADS))
    steps = committed_steps(directory, "flat")
    assert [step.step for step in steps] == [1, 2, 3]
    assert len({step.adapter_digest for step in steps}) == 1
    assert all(step.grad_norm == 0 and step.num_groups_without_gradient == 2 for step in steps)


def test_one_shared_worker_gives_the_same_steps(tmp_path: Path) -> None:
    split = run_all(tmp_path / "split", tiny_settings(tmp_path, tiny_task("a")))
    shared = run_all(
        tmp_path / "shared", tiny_settings(tmp_path, tiny_task("a"), workers={"layout": "shared", "environment_processes": 1})
    )
    assert digests(split, "a") == digests(shared, "a")


@pytest.mark.usefixtures("exact")
def test_old_records_are_thinned(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("a", steps=7), state={"keep_every_steps": 3}, workers=THREADS)
    directory = run_all(tmp_path, settings)
    assert list_steps(directory.steps_folder("a")) == [0, 3, 6, 7]


ALL_ON = {"host_tokens": 4096, "disk_tokens": 4096, "drafting": "auto"}
"""Tiers of cache, and drafts."""


TWO_TASKS = (tiny_task("a", steps=4), tiny_task("b", steps=4))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("unbroken")
    return run_all(folder, tiny_settings(folder, *TWO_TASKS, workers=THREADS))


@pytest.mark.parametrize(("worker", "num_engines", "more"), [("rollout", 1, {}), ("train", 1, {}), ("rollout-1", 2, ALL_ON)])
def test_a_killed_worker_is_replaced_and_nothing_changes(
    tmp_path: Path, unbroken: RunDirectory, worker: str, num_engines: int, more: dict[str, Any]
) -> None:
    workers = {"environment_processes": 1, "rollout_engines": num_engines}
    engine = {"max_rows": 16, "slot_tokens": 2048, "pool_tokens": 2048, "chunk_tokens": 5} | more
    directory = new_run(tmp_path / "broken", settings := tiny_settings(tmp_path, *TWO_TASKS, workers=workers, engine=engine))
    drivers: list[RunDriver] = []
    killed: list[int] = []

    def kill_once(event: object) -> None:
        if getattr(event, "step", 0) == 2 and not killed:
            killed.append(worker_pids(drivers[0])[worker])
            kill(killed[0])

    with open_run(settings, directory, resume=False) as run:
        run.listeners.append(kill_once)
        assert asyncio.run(drive(settings, directory, run, drivers.append)) == "done"
    assert killed
    lost = [e for e in read_latest_events(directory.events) if isinstance(e, WorkerLost)]
    assert [e.worker for e in lost] == [worker]
    assert "SIGKILL" in lost[0].cause
    for task in ("a", "b"):
        assert digests(directory, task) == digests(unbroken, task)


def test_a_run_whose_worker_keeps_dying_fails_with_the_cause(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("a", steps=50), workers={"environment_processes": 1, "max_restarts": 1})
    directory = new_run(tmp_path, settings)
    drivers: list[RunDriver] = []

    def kill_always(event: object) -> None:
        for pid in worker_pids(drivers[0]).values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    with open_run(settings, directory, resume=False) as run:
        run.listeners.append(kill_always)
        with pytest.raises(WorkerFailure, match="SIGKILL"):
            asyncio.run(drive(settings, directory, run, drivers.append))
    assert [e.status for e in read_latest_events(directory.events) if isinstance(e, RunEnded)] == ["failed"]


def _drive_until_error(tmp_path: Path, breaks: Callable[[RunDriver], None]) -> None:
    """A run in whose process something raises ZeroDivisionError ends with it, rather than waiting for ever."""
    directory = new_run(tmp_path, settings := tiny_settings(tmp_path, tiny_task("a", steps=50)))

    async def drive_in_time(run: OpenRun) -> None:
        async with asyncio.timeout(240):
            await drive(settings, directory, run, breaks)

    with open_run(settings, directory, resume=False) as run, pytest.raises(ZeroDivisionError):
        asyncio.run(drive_in_time(run))
    assert [e.status for e in read_latest_events(directory.events) if isinstance(e, RunEnded)] == ["interrupted"]


def _raise(*_: object) -> None:
    raise ZeroDivisionError


def test_a_listener_that_raises_ends_the_run(tmp_path: Path) -> None:
    def listen(event: object) -> None:
        if isinstance(event, WorkerSpan):
            _raise()

    _drive_until_error(tmp_path, lambda driver: driver.listeners.append(listen))


def test_an_error_in_the_handler_of_a_workers_messages_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _drive_until_error(tmp_path, lambda driver: monkeypatch.setattr(driver.compute.rollout_of("a"), "on_results", _raise))


@pytest.mark.usefixtures("exact")
def test_recover_appends_the_events_that_a_crash_left_out(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("a"), workers=THREADS)
    directory = run_all(tmp_path, settings)
    lines = directory.events.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if b'"kind":"step"' not in line or b'"step":3' not in line]
    assert len(kept) == len(lines) - 1
    directory.events.write_bytes(b"".join(kept))
    with open_run(settings, directory, resume=True):
        pass
    assert [step.step for step in committed_steps(directory, "a")] == [1, 2, 3]


def test_a_run_that_cannot_begin_leaves_no_directory(tmp_path: Path) -> None:
    task = tiny_task("a")
    task["environment"] = task["environment"] | {"function": f"{REWARDS}:no_such_function"}
    directory = new_run(tmp_path, settings := tiny_settings(tmp_path, task))
    with pytest.raises(ConfigError, match="no_such_function"):
        run_file(settings, directory, show_progress=False)
    assert not directory.path.exists()


@pytest.mark.usefixtures("exact")
def test_another_base_model_is_refused_on_resume(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("a"), workers=THREADS)
    directory = run_all(tmp_path, settings)
    shutil.rmtree(tmp_path / "model")
    make_tiny_model(tmp_path / "model", seed=7)
    assert run_file(settings, directory, resume=True, show_progress=False) == "failed"
    states = [e for e in read_latest_events(directory.events) if isinstance(e, TaskStateChanged)]
    assert "was trained on base" in states[-1].cause
