"""The Python API on a tiny model: watch, pause, cancel, stop, resume, sample."""

from pathlib import Path

import pytest

from plait.client import Run
from plait.observe.events import TaskStateChanged
from plait.types.errors import PlaitError
from tests.runs import committed_steps, tiny_settings, tiny_task


def test_steps_arrive_and_the_policy_can_be_sampled(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("a"), tiny_task("b"))
    with Run(settings=settings, runs=tmp_path / "runs") as run:
        assert [step.step for step in run.steps("a")] == [1, 2, 3]
        assert run.wait() == "done"
    assert run.summary.tasks["b"].step == 3
    with run.policy("a", step=3) as policy:
        first, second = policy.sample("hello", n=2, max_new_tokens=6, seed=1)
        assert policy.sample("hello", n=2, max_new_tokens=6, seed=1) == [first, second]
    assert run.report().exists()


def test_leaving_the_block_stops_the_run_and_resume_finishes_it(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("a", steps=30))
    with Run(settings=settings, runs=tmp_path / "runs") as run:
        next(run.steps())
    done = len(committed_steps(run.directory, "a"))
    assert 1 <= done < 30
    with Run.resume(run.directory.path) as again:
        assert again.wait(timeout_s=120) == "done"
    assert [step.step for step in committed_steps(run.directory, "a")] == list(range(1, 31))


def test_a_cancelled_task_ends_and_the_others_go_on(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("long", steps=1000), tiny_task("short", steps=4))
    with Run(settings=settings, runs=tmp_path / "runs") as run:
        next(run.steps("long"))
        run.cancel("long")
        assert run.wait(timeout_s=120) == "done"
    assert len(committed_steps(run.directory, "short")) == 4
    assert len(committed_steps(run.directory, "long")) < 1000


def test_a_paused_task_starts_no_step_until_it_goes_on(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("a", steps=6), tiny_task("b", steps=12))
    with Run(settings=settings, runs=tmp_path / "runs") as run:
        events = run.events()
        next(e for e in events if getattr(e, "step", 0) == 2 and getattr(e, "task", "") == "a")
        run.pause("a")
        with pytest.raises(PlaitError, match="paused"):
            run.pause("a")
        next(e for e in events if isinstance(e, TaskStateChanged) and e.task == "b" and e.state == "done")
        paused_at = len(committed_steps(run.directory, "a"))
        assert paused_at < 6
        run.unpause("a")
        assert run.wait(timeout_s=120) == "done"
    assert [step.step for step in committed_steps(run.directory, "a")] == [1, 2, 3, 4, 5, 6]


def test_what_ends_a_run_at_the_start_is_raised(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("a"))
    settings = settings.model_copy(update={"model": settings.model.model_copy(update={"device": "cuda"})})
    with Run(settings=settings, runs=tmp_path / "runs") as run, pytest.raises(PlaitError, match="torch sees no CUDA device"):
        run.wait(timeout_s=60)


def test_an_unknown_task_is_named(tmp_path: Path) -> None:
    with Run(settings=tiny_settings(tmp_path, tiny_task("a")), runs=tmp_path / "runs") as run:
        next(run.steps())
        with pytest.raises(KeyError, match="no task 'b'; there are a"):
            run.cancel("b")
