"""What the manager lets train: versions, the gate, and the order over tasks."""

import pytest

from plait.tasks.commands import Command, OpenTask, RollOut, StopTask, Train, WarmStep
from plait.tasks.lifecycle import TaskState
from plait.tasks.manager import TaskManager
from plait.tasks.update_queue import MAX_UPDATES_IN_FLIGHT
from plait.types.policy import PolicyVersion
from tests.tasks.cases import stamps, strict

# ---- versions and the gate


def test_a_step_rolls_out_only_from_the_version_before_it() -> None:
    manager = TaskManager()
    assert manager.add(strict()) == [OpenTask("a")]
    assert manager.opened("a", 0) == [RollOut("a", 1, 0)]
    assert manager.batch_ready("a", 1, stamps("a", 0)) == [Train("a", 1)]
    assert manager.committed("a", 1) == [RollOut("a", 2, 1)]
    assert manager.version("a") == 1


def test_staleness_starts_as_many_steps_ahead_but_not_from_inside_the_warm_start() -> None:
    manager = TaskManager()
    manager.add(strict(warm_steps=2, rl_steps=9, max_staleness=2))
    assert manager.opened("a", 0) == [WarmStep("a", 1)]
    manager.batch_ready("a", 1, [])
    assert manager.committed("a", 1) == [WarmStep("a", 2)]
    manager.batch_ready("a", 2, [])
    assert manager.committed("a", 2) == [RollOut("a", 3, 2), RollOut("a", 4, 2), RollOut("a", 5, 2)]
    manager.batch_ready("a", 4, stamps("a", 2))
    assert manager.queued == (("a", 4),)
    assert manager.batch_ready("a", 3, stamps("a", 2)) == [Train("a", 3)]
    assert manager.committed("a", 3) == [Train("a", 4), RollOut("a", 6, 3)]


@pytest.mark.parametrize(
    "stamp",
    [
        PolicyVersion("local", "a", 0),
        PolicyVersion("local", "a", 2),
        PolicyVersion("local", "b", 1),
        PolicyVersion("other", "a", 1),
    ],
    ids=["stale", "from the future", "of another task", "of another tenant"],
)
def test_one_forged_stamp_ends_that_task_alone(stamp: PolicyVersion) -> None:
    manager = TaskManager()
    for name in ("a", "b"):
        manager.add(strict(name))
        manager.opened(name, 1)
    (stop,) = manager.batch_ready("a", 2, [*stamps("a", 1) * 5, stamp])
    assert isinstance(stop, StopTask)
    assert stop.state == TaskState.FAILED
    assert str(stamp) in stop.cause
    assert manager.batch_ready("b", 2, stamps("b", 1)) == [Train("b", 2)]


def test_a_version_that_is_not_committed_yet_stamps_no_token_whatever_the_staleness() -> None:
    manager = TaskManager()
    manager.add(strict(rl_steps=9, max_staleness=3))
    manager.opened("a", 0)
    (stop,) = manager.batch_ready("a", 3, stamps("a", 1))
    assert isinstance(stop, StopTask)
    assert "version 0 is the newest" in stop.cause


def test_a_batch_that_comes_twice_trains_once() -> None:
    manager = TaskManager()
    manager.add(strict())
    manager.opened("a", 0)
    assert manager.batch_ready("a", 1, stamps("a", 0)) == [Train("a", 1)]
    (stop,) = manager.batch_ready("a", 1, stamps("a", 0))
    assert isinstance(stop, StopTask)
    assert "nobody asked for" in stop.cause


def test_a_batch_without_tokens_still_advances_the_version() -> None:
    manager = TaskManager()
    manager.add(strict())
    manager.opened("a", 0)
    assert manager.batch_ready("a", 1, []) == [Train("a", 1)]
    assert manager.committed("a", 1) == [RollOut("a", 2, 1)]


def test_a_commit_out_of_step_ends_the_task() -> None:
    manager = TaskManager()
    manager.add(strict())
    manager.opened("a", 0)
    manager.batch_ready("a", 1, stamps("a", 0))
    (stop,) = manager.committed("a", 2)
    assert isinstance(stop, StopTask)
    assert stop.state == TaskState.FAILED


# ---- the queue of updates


def _ready_tasks(manager: TaskManager, names: list[str]) -> list[Command]:
    for name in names:
        manager.add(strict(name))
        manager.opened(name, 0)
    return [command for name in names for command in manager.batch_ready(name, 1, stamps(name, 0))]


def test_updates_go_to_the_trainer_in_the_order_in_which_batches_were_ready() -> None:
    manager, names = TaskManager(), [f"t{i}" for i in range(MAX_UPDATES_IN_FLIGHT + 3)]
    sent = _ready_tasks(manager, names)
    assert sent == [Train(name, 1) for name in names[:MAX_UPDATES_IN_FLIGHT]]
    assert manager.queued == tuple((name, 1) for name in names[MAX_UPDATES_IN_FLIGHT:])
    assert Train(names[MAX_UPDATES_IN_FLIGHT], 1) in manager.committed(names[4], 1)


def test_a_task_that_ends_gives_its_place_with_the_trainer_to_the_next() -> None:
    manager, names = TaskManager(), [f"t{i}" for i in range(MAX_UPDATES_IN_FLIGHT + 1)]
    _ready_tasks(manager, names)
    commands = manager.cancel(names[0])
    assert commands == [StopTask(names[0], TaskState.CANCELLED, "cancelled"), Train(names[-1], 1)]
    assert manager.committed(names[0], 1) == []


def test_a_publish_tells_other_tasks_nothing() -> None:
    manager = TaskManager()
    _ready_tasks(manager, ["a", "b", "c"])
    assert {command.task for command in manager.committed("a", 1)} == {"a"}
