"""Small real runs for tests: a tiny random model, an environment that pays for a letter, real worker processes."""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from plait.config.load import make_settings
from plait.config.run import RunSettings
from plait.models.tiny import make_tiny_model
from plait.observe.events import StepCommitted
from plait.observe.log import read_latest_events
from plait.state.rundir import RunDirectory
from plait.tasks.driver import RunDriver
from plait.tasks.own_compute import OwnCompute

REWARDS = Path(__file__).parent / "tiny_rewards.py"
ENDLESS = 10_000
"""Steps of tasks that are to go on until something is done to them."""


def tiny_task(name: str, **changes: Any) -> dict[str, Any]:
    task: dict[str, Any] = {
        "name": name,
        "steps": 3,
        "groups_per_step": 2,
        "group_size": 4,
        "lora": {"rank": 4},
        "sampling": {"max_new_tokens": 8},
        "optimizer": {"learning_rate": 1e-2},
        "evaluation": {"questions": 0},
        "environment": {
            "kind": "function",
            "function": f"{REWARDS}:count_e",
            "examples": f"{REWARDS}:question",
            "require_stop": False,
        },
    }
    return task | changes


def full_task(name: str, **changes: Any) -> dict[str, Any]:
    """One that trains all weights."""
    task = tiny_task(name, training="full", optimizer={"learning_rate": 1e-3}, **changes)
    del task["lora"]
    return task


def tiny_settings(folder: Path, *tasks: dict[str, Any], **changes: Any) -> RunSettings:
    """Settings of a run on a tiny model that lies in `folder`."""
    model = folder / "model"
    if not model.exists():
        make_tiny_model(
            model, hidden_size=128, intermediate_size=256, head_dim=64
        )  # Smaller products take kernels of other rounding.
    plain: dict[str, Any] = {
        "name": "tiny",
        "model": {"path": str(model), "max_context_tokens": 128},
        "workers": {"environment_processes": 1},
        "engine": {"max_rows": 16, "slot_tokens": 2048, "pool_tokens": 2048, "chunk_tokens": 5},
        "tasks": list(tasks),
    }
    return make_settings(plain | changes, folder)


def committed_steps(directory: RunDirectory, task: str) -> list[StepCommitted]:
    return [e for e in read_latest_events(directory.events) if isinstance(e, StepCommitted) and e.task == task]


def digests(directory: RunDirectory, task: str) -> list[tuple[int, str, float]]:
    """(step, adapter digest, loss) of every step."""
    return [(e.step, e.adapter_digest, e.loss) for e in committed_steps(directory, task)]


def ended_at(settings: RunSettings, steps: Mapping[str, int]) -> RunSettings:
    """The same tasks, each of which ends with a step of its own: of a run that was killed before its end, however far it was."""
    tasks = tuple(task.model_copy(update={"steps": steps[task.name]}) for task in settings.tasks)
    return settings.model_copy(update={"tasks": tasks})


def kill(pid: int) -> None:
    """A child of this process with SIGKILL; when this returns it is dead, and its ends of all connections are closed."""
    os.kill(pid, signal.SIGKILL)
    while is_alive(pid):
        time.sleep(0.001)


def is_alive(pid: int) -> bool:
    """A process that has ended and that nobody has waited for is not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def worker_pids(driver: RunDriver) -> dict[str, int]:
    """By worker, of a run that has workers of its own."""
    assert isinstance(driver.compute, OwnCompute)
    return driver.compute.workers.pids
