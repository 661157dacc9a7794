"""Small real runs for tests: a tiny random model, an environment that pays for a letter, real worker processes."""

from pathlib import Path
from typing import Any

from plait.config.load import make_settings
from plait.config.run import RunSettings
from plait.models.tiny import make_tiny_model
from plait.observe.events import StepCommitted
from plait.observe.log import read_latest_events
from plait.state.rundir import RunDirectory
from plait.tasks.driver import RunDriver
from plait.tasks.own_compute import OwnCompute

REWARDS = Path(__file__).parent / "tiny_rewards.py"


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


def worker_pids(driver: RunDriver) -> dict[str, int]:
    """By worker, of a run that has workers of its own."""
    assert isinstance(driver.compute, OwnCompute)
    return driver.compute.workers.pids
