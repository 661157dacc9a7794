"""Whole runs in which a task trains all weights, with real worker processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from plait.client.policies import export_policy, open_policy
from plait.client.runs import run_file
from plait.config.load import effective_toml, load_settings
from plait.config.run import RunSettings
from plait.state.records import MODEL_FILE, list_steps, read_record
from plait.state.rundir import RunDirectory
from tests.client.test_resume import RUN
from tests.runs import committed_steps, digests, full_task, tiny_settings, tiny_task

EVALUATED = {"questions": 4, "every_steps": 2}


def run_all(folder: Path, settings: RunSettings) -> RunDirectory:
    directory = RunDirectory.create(folder, settings.name, effective_toml(settings))
    assert run_file(settings, directory, show_progress=False) == "done"
    return directory


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("full")


@pytest.fixture(scope="module")
def together(folder: Path) -> RunDirectory:
    """Two tasks of all weights, of which a worker holds one at a time, and an adapter."""
    tasks = (full_task("f", steps=4, evaluation=EVALUATED), tiny_task("a", steps=4), full_task("g"))
    engine = {"max_rows": 16, "slot_tokens": 2048, "pool_tokens": 2048, "chunk_tokens": 5, "full_policies": 1}
    return run_all(folder / "together", tiny_settings(folder, *tasks, engine=engine))


def test_beside_others_a_task_trains_as_it_does_alone(folder: Path, together: RunDirectory) -> None:
    alone = run_all(folder / "alone", tiny_settings(folder, full_task("f", steps=4, evaluation=EVALUATED)))
    assert digests(together, "f") == digests(alone, "f")
    adapter = run_all(folder / "adapter", tiny_settings(folder, tiny_task("a", steps=4)))
    assert digests(together, "a") == digests(adapter, "a")


def test_every_batch_is_exactly_on_policy(together: RunDirectory) -> None:
    steps = committed_steps(together, "f") + committed_steps(together, "g")
    assert len({step.adapter_digest for step in steps}) == len(steps) == 7
    assert any(step.grad_norm > 0 for step in steps)
    assert {step.ratio_mean for step in steps if step.ratio_mean is not None} == {1.0}
    assert {step.logprob_gap_max for step in steps if step.logprob_gap_max is not None} == {0.0}
