"""Pausing, resuming and ending tasks, and what the manager makes of events that come late."""

from collections.abc import Callable

import pytest

from plait.tasks.commands import Command, Evaluate, RollOut, StopTask, Train
from plait.tasks.lifecycle import TaskState
from plait.tasks.manager import TaskManager
from plait.types.errors import PlaitError
from tests.tasks.cases import stamps, strict

# ---- pausing


def test_a_paused_task_completes_its_step_and_starts_no_other() -> None:
    manager = TaskManager()
    manager.add(strict(has_evaluation=True, evaluate_every_steps=1))
    manager.opened("a", 0)
    assert manager.pause("a") == []
    assert manager.batch_ready("a", 1, stamps("a", 0)) == [Train("a", 1)]
    assert manager.committed("a", 1) == []
    assert manager.resume("a") == [Evaluate("a", 1, "periodic"), RollOut("a", 2, 1)]


def test_resuming_during_a_rollout_does_not_start_it_again() -> None:
    manager = TaskManager()
    manager.add(strict())
    manager.opened("a", 0)
    manager.pause("a")
    assert manager.resume("a") == []
    assert manager.batch_ready("a", 1, stamps("a", 0)) == [Train("a", 1)]


def test_a_task_paused_before_it_opens_starts_when_resumed() -> None:
    manager = TaskManager()
    manager.add(strict())
    manager.pause("a")
    assert manager.opened("a", 0) == []
    assert manager.state("a") == TaskState.PAUSED
    assert manager.resume("a") == [RollOut("a", 1, 0)]


def test_a_task_paused_and_resumed_before_it_opens_starts_when_opened() -> None:
    manager = TaskManager()
    manager.add(strict())
    manager.pause("a")
    assert manager.resume("a") == []
    assert manager.opened("a", 0) == [RollOut("a", 1, 0)]


def test_a_paused_task_with_nothing_left_is_done() -> None:
    manager = TaskManager()
    manager.add(strict(rl_steps=1))
    manager.opened("a", 0)
    manager.batch_ready("a", 1, stamps("a", 0))
    manager.pause("a")
    assert manager.committed("a", 1) == [StopTask("a", TaskState.DONE, "")]


@pytest.mark.parametrize("call", [TaskManager.pause, TaskManager.resume])
def test_a_task_that_has_ended_is_neither_paused_nor_resumed(call: Callable[[TaskManager, str], list[Command]]) -> None:
    manager = TaskManager()
    manager.add(strict())
    manager.cancel("a")
    with pytest.raises(PlaitError, match="'a' is cancelled"):
        call(manager, "a")


def test_only_a_paused_task_is_resumed() -> None:
    manager = TaskManager()
    manager.add(strict())
    with pytest.raises(PlaitError, match="not paused"):
        manager.resume("a")


def test_two_tasks_of_one_name_are_refused() -> None:
    manager = TaskManager()
    manager.add(strict())
    with pytest.raises(PlaitError, match="'a' exists already"):
        manager.add(strict())


# ---- ends, and what comes after them


def test_what_comes_in_after_the_end_is_ignored() -> None:
    manager = TaskManager()
    manager.add(strict(has_evaluation=True))
    manager.add(strict("late"))
    manager.opened("a", 0)
    manager.cancel("late")
    manager.failed("a", "boom")
    late = [
        manager.opened("late", 0),
        manager.batch_ready("a", 1, stamps("a", 0)),
        manager.committed("a", 1),
        manager.evaluated("a", 0, 1.0),
        manager.failed("a", "again"),
        manager.cancel("a"),
    ]
    assert late == [[]] * 6
    assert (manager.state("late"), manager.version("late")) == (TaskState.CANCELLED, 0)
    assert manager.cause("a") == "boom"


def test_a_failing_evaluation_ends_its_task() -> None:
    manager = TaskManager()
    manager.add(strict(has_evaluation=True))
    assert manager.opened("a", 0) == [Evaluate("a", 0, "before"), RollOut("a", 1, 0)]
    assert manager.failed("a", "no question could be scored") == [StopTask("a", "failed", "no question could be scored")]
    assert manager.all_ended


def test_a_finished_task_is_done_as_soon_as_it_is_opened() -> None:
    manager = TaskManager()
    manager.add(strict(has_evaluation=True))
    assert manager.opened("a", 3, {0: 0.1, 3: 0.9}) == [StopTask("a", TaskState.DONE, "")]


def test_a_task_that_was_killed_before_its_last_evaluation_makes_up_for_it() -> None:
    manager = TaskManager()
    manager.add(strict(has_evaluation=True))
    assert manager.opened("a", 3, {0: 0.1}) == [Evaluate("a", 3, "after")]
    assert manager.evaluated("a", 3, 0.9) == [StopTask("a", TaskState.DONE, "")]


def test_an_evaluation_that_a_kill_cut_off_is_made_up_for_if_its_record_is_kept() -> None:
    manager = TaskManager()
    manager.add(strict(has_evaluation=True, rl_steps=5))
    assert manager.opened("a", 2, {}, kept_versions=[0, 1, 2]) == [Evaluate("a", 0, "before"), RollOut("a", 3, 2)]


def test_scores_of_versions_that_were_lost_are_void() -> None:
    manager = TaskManager()
    manager.add(strict(has_evaluation=True, evaluate_every_steps=1, rl_steps=5, target_accuracy=0.9))
    manager.opened("a", 2, {0: 0.1, 1: 0.2, 2: 0.3, 3: 1.0})
    assert manager.best_evaluation("a") == 2
    assert manager.state("a") == TaskState.RUNNING


def test_a_worker_that_comes_back_with_an_older_version_ends_the_task() -> None:
    manager = TaskManager()
    manager.add(strict())
    manager.opened("a", 2)
    (stop,) = manager.opened("a", 1)
    assert isinstance(stop, StopTask)
    assert "a record is lost" in stop.cause


def test_an_update_that_was_durable_before_its_worker_was_lost_counts() -> None:
    manager = TaskManager()
    manager.add(strict())
    manager.opened("a", 0)
    manager.batch_ready("a", 1, stamps("a", 0))
    assert manager.opened("a", 1) == [RollOut("a", 2, 1)]
