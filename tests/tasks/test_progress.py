"""Evaluations: when they are due, what they protect, and when they end a task."""

from plait.tasks.commands import Command, Evaluate, RollOut, StopTask, Train
from plait.tasks.lifecycle import TaskState
from plait.tasks.manager import TaskManager
from plait.tasks.progress import TaskProgress
from tests.tasks.cases import stamps, strict


def _step(manager: TaskManager, step: int) -> list[Command]:
    assert manager.batch_ready("a", step, stamps("a", step - 1)) == [Train("a", step)]
    return manager.committed("a", step)


def test_reaching_the_target_ends_the_task_with_that_very_version() -> None:
    manager = TaskManager()
    manager.add(strict(rl_steps=9, has_evaluation=True, evaluate_every_steps=2, target_accuracy=0.8))
    manager.opened("a", 0)
    manager.evaluated("a", 0, 0.9)
    assert _step(manager, 1) == [RollOut("a", 2, 1)]
    assert _step(manager, 2) == [Evaluate("a", 2, "periodic")]
    assert manager.evaluated("a", 2, 0.7) == [RollOut("a", 3, 2)]
    _step(manager, 3)
    assert _step(manager, 4) == [Evaluate("a", 4, "periodic")]
    assert manager.evaluated("a", 4, 0.8) == [StopTask("a", TaskState.DONE, "")]


def test_patience_ends_a_task_that_no_longer_gains() -> None:
    manager = TaskManager()
    manager.add(strict(rl_steps=9, has_evaluation=True, evaluate_every_steps=1, patience_evaluations=2, min_gain=0.05))
    manager.opened("a", 0)
    manager.evaluated("a", 0, 0.1)
    for step, accuracy in enumerate([0.5, 0.6, 0.64, 0.65], start=1):
        assert manager.state("a") == TaskState.RUNNING
        _step(manager, step)
        commands = manager.evaluated("a", step, accuracy)
    assert commands == [StopTask("a", TaskState.DONE, "")]


def test_a_stale_task_that_stops_early_completes_what_it_had_started_and_scores_its_last() -> None:
    manager = TaskManager()
    manager.add(strict(rl_steps=9, has_evaluation=True, evaluate_every_steps=2, target_accuracy=0.8, max_staleness=1))
    manager.opened("a", 0)
    for step in (1, 2):
        manager.batch_ready("a", step, stamps("a", max(0, step - 2)))
        commands = manager.committed("a", step)
    assert commands == [Evaluate("a", 2, "periodic")]
    assert manager.evaluated("a", 2, 1.0) == []
    manager.batch_ready("a", 3, stamps("a", 1))
    assert manager.committed("a", 3) == [Evaluate("a", 3, "after")]
    manager.evaluated("a", 0, 0.0)
    assert manager.evaluated("a", 3, 0.5) == [StopTask("a", TaskState.DONE, "")]
    assert manager.best_evaluation("a") == 2


def test_a_task_that_had_stopped_early_stays_stopped() -> None:
    manager = TaskManager()
    manager.add(strict(rl_steps=9, has_evaluation=True, evaluate_every_steps=2, target_accuracy=0.8))
    assert manager.opened("a", 2, {2: 0.9}, kept_versions=[0, 2]) == [Evaluate("a", 0, "before")]
    assert manager.evaluated("a", 0, 0.1) == [StopTask("a", TaskState.DONE, "")]


def test_records_that_somebody_needs_are_protected() -> None:
    manager = TaskManager()
    manager.add(strict(rl_steps=9, has_evaluation=True, evaluate_every_steps=1, max_staleness=1))
    manager.opened("a", 0)
    assert manager.protected_versions("a") == (0,)
    manager.batch_ready("a", 1, stamps("a", 0))
    manager.committed("a", 1)
    assert manager.protected_versions("a") == (0, 1)
    manager.evaluated("a", 0, 0.5)
    manager.evaluated("a", 1, 0.4)
    manager.batch_ready("a", 2, stamps("a", 0))
    manager.batch_ready("a", 3, stamps("a", 1))
    assert manager.protected_versions("a") == (0,), "the best"


def test_an_evaluation_that_measured_nothing_is_never_the_best() -> None:
    manager = TaskManager()
    manager.add(strict(rl_steps=9, has_evaluation=True, evaluate_every_steps=1, target_accuracy=0.8))
    manager.opened("a", 0)
    manager.evaluated("a", 0, float("nan"))
    assert manager.best_evaluation("a") is None
    _step(manager, 1)
    assert manager.evaluated("a", 1, float("nan")) == [RollOut("a", 2, 1)]


def test_the_versions_that_roll_out_are_protected() -> None:
    manager = TaskManager()
    manager.add(strict(rl_steps=9, max_staleness=1))
    manager.opened("a", 0)
    manager.batch_ready("a", 1, stamps("a", 0))
    assert manager.committed("a", 1) == [RollOut("a", 3, 1)]
    assert manager.protected_versions("a") == (0, 1)
    manager.batch_ready("a", 2, stamps("a", 0))
    assert manager.protected_versions("a") == (1,)


def test_scores_are_judged_in_the_order_of_versions_whichever_comes_first() -> None:
    manager = TaskManager()
    manager.add(strict(rl_steps=9, has_evaluation=True, evaluate_every_steps=1, patience_evaluations=2, max_staleness=1))
    manager.opened("a", 0)
    for step in (1, 2, 3, 4):
        manager.batch_ready("a", step, stamps("a", max(0, step - 2)))
        manager.committed("a", step)
        if step < 3:
            manager.evaluated("a", step, 0.5)
    assert manager.evaluated("a", 4, 0.5) == [], "version 3 could still be the best"
    assert manager.evaluated("a", 3, 0.9) == [RollOut("a", 5, 4), RollOut("a", 6, 4)]


def test_an_evaluation_that_ends_a_task_does_so_though_a_later_one_was_known_first() -> None:
    plan = strict(rl_steps=9, has_evaluation=True, evaluate_every_steps=1, patience_evaluations=1, max_staleness=2)
    progress = TaskProgress(plan)
    progress.open(0, {0: 0.1}, ())
    progress.start()
    for step in (1, 2, 3):
        progress.collect(step, stamps("a", 0))
        progress.commit(step)
    progress.start()
    for version, score in ((3, 0.9), (1, 0.5), (2, 0.4)):
        progress.score(version, score)
    assert progress.stop_after == 3, "version 2 brought no gain over version 1"
