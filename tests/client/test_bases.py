"""A run on two base models of different vocabulary, the first with two training processes, of which one is killed."""

import asyncio
from pathlib import Path
from typing import Any

from plait.client.policies import open_policy
from plait.client.runs import drive, open_run, run_file
from plait.config.load import effective_toml
from plait.config.run import RunSettings
from plait.models.tiny import make_tiny_model
from plait.observe.events import RunStarted, WorkerLost, WorkerSpan
from plait.observe.log import read_latest_events
from plait.state.rundir import RunDirectory
from plait.tasks.bases_compute import BasesCompute
from plait.tasks.driver import RunDriver
from plait.tasks.own_compute import OwnCompute
from tests.runs import digests, kill, tiny_settings, tiny_task

THREADS = {"layout": "shared", "executor": "thread", "environment_processes": 1}
"""Of what trains alone: the same steps, and no worker process to start."""


def new_run(folder: Path, settings: RunSettings) -> RunDirectory:
    return RunDirectory.create(folder / "runs", settings.name, effective_toml(settings))


def trained_alone(folder: Path, task: dict[str, Any], **changes: Any) -> list[tuple[int, str, float]]:
    settings = tiny_settings(folder, task, workers=THREADS, name=task["name"], **changes)
    directory = new_run(folder, settings)
    assert run_file(settings, directory, show_progress=False) == "done"
    return digests(directory, task["name"])


def pids_of(driver: RunDriver, task: str) -> dict[str, int]:
    """Workers of the task's base model."""
    assert isinstance(driver.compute, BasesCompute)
    compute = driver.compute.compute_of(task)
    assert isinstance(compute, OwnCompute)
    return compute.workers.pids


def run_together(folder: Path, settings: RunSettings) -> RunDirectory:
    """`train-1` of the first base model is killed when its second task commits step 2."""
    directory, drivers, killed = new_run(folder, settings), list[RunDriver](), list[int]()

    def kill_once(event: object) -> None:
        if getattr(event, "step", 0) == 2 and getattr(event, "task", "") == "b" and not killed:
            killed.append(pids_of(drivers[0], "b")["train-1"])
            kill(killed[0])

    with open_run(settings, directory, resume=False) as run:
        run.listeners.append(kill_once)
        assert asyncio.run(drive(settings, directory, run, drivers.append)) == "done"
    assert killed
    return directory


def test_every_task_trains_what_it_would_alone(tmp_path: Path) -> None:
    small = make_tiny_model(tmp_path / "small", hidden_size=128, intermediate_size=256, head_dim=64, vocab_size=320, seed=1)
    model = {"path": str(small), "max_context_tokens": 112}
    tasks = [*(tiny_task(name, steps=3) for name in "abc"), tiny_task("s", steps=3, model="small")]
    together = run_together(
        tmp_path,
        tiny_settings(
            tmp_path, *tasks, models=[{"name": "small", "workers": {"layout": "shared"}, **model}],
            workers={"environment_processes": 1, "train_workers": 2},
        ),
    )  # fmt: skip
    assert digests(together, "c") == trained_alone(tmp_path, tiny_task("c", steps=3))
    assert digests(together, "s") == trained_alone(tmp_path, tiny_task("s", steps=3), model=model)

    events = list(read_latest_events(together.events))
    started = next(event for event in events if isinstance(event, RunStarted))
    assert started.workers == ("rollout", "train-0", "train-1", "small/worker")
    assert started.task_models == {**dict.fromkeys("abc", str(tmp_path / "model")), "s": "small"}
    assert [event.worker for event in events if isinstance(event, WorkerLost)] == ["train-1"]
    spans = {(event.worker, event.task) for event in events if isinstance(event, WorkerSpan) and event.task}
    assert {worker for worker, _ in spans} == {"train-0", "train-1", "small/worker"}
    assert {task for worker, task in spans if worker == "small/worker"} == {"s"}
    assert "on small" in together.report.read_text(encoding="utf-8")
    with open_policy(together, "s") as policy:
        assert policy.tokenizer.vocab_size == 320
        assert policy.sample("e?", max_new_tokens=4)
