"""A small record, and a way to write it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plait.observe.events import StepCommitted
from plait.state.records import write_record
from plait.state.step_record import StepRecord

ADAPTER_CONFIG = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}


def make_event(task: str, step: int) -> StepCommitted:
    return StepCommitted(
        time_s=1000.0 + step,
        task=task,
        step=step,
        adapter_digest="",
        loss=0.5,
        grad_norm=1.0,
        learning_rate=1e-3,
        num_sequences=64,
        num_trained_tokens=640,
    )


def make_record(step: int, task: str = "add", **changes: Any) -> StepRecord:
    fields: dict[str, Any] = {
        "task": task,
        "step": step,
        "phase": "rl",
        "data_cursor": 8 * step,
        "seed": 7,
        "base_digest": "base",
        "plait_version": "0.1.0",
        "event": make_event(task, step) if step else None,
    }
    return StepRecord(**{**fields, **changes})


def make_tensors(step: int) -> dict[str, np.ndarray]:
    noise = np.random.default_rng(step)
    return {
        "layer.q_proj.lora_A.weight": noise.normal(size=(4, 6)).astype(np.float32),
        "layer.q_proj.lora_B.weight": noise.normal(size=(6, 4)).astype(np.float32),
    }


@pytest.fixture
def write() -> Callable[..., StepRecord]:
    def write_step(directory: Path, step: int, **changes: Any) -> StepRecord:
        moments = {f"{name}.m": tensor * 2 for name, tensor in make_tensors(step).items()}
        return write_record(directory, step, make_tensors(step), ADAPTER_CONFIG, moments, make_record(step, **changes))

    return write_step


class Factory:
    """What tests build records from."""

    adapter_config = ADAPTER_CONFIG
    event = staticmethod(make_event)
    record = staticmethod(make_record)
    tensors = staticmethod(make_tensors)


@pytest.fixture(scope="session")
def make() -> type[Factory]:
    return Factory
