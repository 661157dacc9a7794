"""What tells that the rollout has other weights than the trainer (P27): silent where they are equal, and heard where not."""

from pathlib import Path
from typing import Any

import pytest

from plait.cluster import rollout_role
from plait.models.decoder import Decoder
from plait.observe.events import Note
from plait.observe.log import read_latest_events
from plait.state.rundir import RunDirectory
from plait.training.trainer import AdapterTrainer
from plait.types.policy import AdapterRef
from tests.client.test_runs import run_all
from tests.runs import committed_steps, tiny_settings, tiny_task

THREADS = {"executor": "thread", "environment_processes": 1}


def test_at_learning_rate_zero_neither_gap_nor_weights_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P27: over several steps, each on a batch of its own that has gradients."""
    step_with = AdapterTrainer.optim_step
    monkeypatch.setattr(AdapterTrainer, "optim_step", lambda self, settings, rate=None: step_with(self, settings, 0.0))
    directory = run_all(tmp_path, tiny_settings(tmp_path, tiny_task("a", steps=6), workers=THREADS))
    steps = committed_steps(directory, "a")
    assert len(steps) == 6
    assert len({step.grad_norm for step in steps}) > 2
    assert len({step.adapter_digest for step in steps}) == 1
    assert {step.logprob_gap_max for step in steps if step.logprob_gap_max is not None} == {0.0}
    assert not gap_alarms(directory)


def test_a_stale_weight_in_the_rollout_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P27: the engine goes on with the first version's adapter under the later versions' names."""
    first: list[Any] = []
    load = rollout_role.load_policy

    def load_stale(ref: AdapterRef, base: Decoder) -> Any:
        first.append(load(ref, base))
        return first[0]

    monkeypatch.setattr(rollout_role, "load_policy", load_stale)
    directory = run_all(tmp_path, tiny_settings(tmp_path, tiny_task("a"), workers=THREADS))
    assert len(first) > 1
    gaps = {step.step: step.logprob_gap_max for step in committed_steps(directory, "a") if step.logprob_gap_max is not None}
    assert [step for step, gap in gaps.items() if gap > 0] == [step for step in gaps if step > 1] != []
    assert {note.task for note in gap_alarms(directory)} == {"a"}


def gap_alarms(directory: RunDirectory) -> list[Note]:
    notes = [event for event in read_latest_events(directory.events) if isinstance(event, Note)]
    return [note for note in notes if "log-probabilities of the same tokens differ" in note.message]
