"""What a run tells before and as it comes up."""

from pathlib import Path

from plait.cluster.messages import Ready
from plait.config.run import RunSettings
from plait.observe.events import Note, RunStarted
from plait.state.rundir import RunDirectory
from plait.tasks.run_models import describe_start, start_events
from tests.runs import full_task, tiny_task

READY = Ready("digest", False, "one thread and two give different bits", "cpu", 1.0)


def test_the_log_begins_with_the_run_and_with_what_a_person_should_know() -> None:
    settings = RunSettings.model_validate({"tasks": [tiny_task("a"), full_task("f")]})
    started, *notes = start_events(settings, "mine", READY, ("rollout", "train"), resumed=False)
    assert isinstance(started, RunStarted)
    told = {(note.level, note.task): note.message for note in notes if isinstance(note, Note)}
    assert told["warning", ""] == f"not batch invariant: {READY.invariance_detail}"
    assert told["warning", "f"].startswith('optimizer.learning_rate = 0.001 is high for training = "full"')
    assert len(notes) == 2


def test_what_starts_is_told_in_a_line() -> None:
    settings = RunSettings.model_validate({"model": {"path": "/models/tiny"}, "tasks": [tiny_task("a"), tiny_task("b")]})
    told = describe_start(settings, RunDirectory(Path("/runs/mine")), is_resumed=True)
    assert told == "resuming run mine: tiny in bfloat16, tasks a, b, in /runs/mine"
