"""The Python API on a tiny model: watch, pause, cancel, stop, resume, sample."""

from pathlib import Path

import pytest

from plait.client import Run
from plait.observe.events import StepCommitted, TaskStateChanged
from plait.types.errors import PlaitError
from tests.runs import ENDLESS, committed_steps, tiny_settings, tiny_task


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
    """Each step takes a second until it is stopped."""
    task = tiny_task("a", steps=20)
    task["environment"] |= {"delay": {"kind": "fixed", "mean_s": 1.0}}
    with Run(settings=tiny_settings(tmp_path, task), runs=tmp_path / "runs") as run:
        next(run.steps())
    assert 1 <= len(committed_steps(run.directory, "a")) < 20
    config = run.directory.config.read_text()
    assert "mean_s = 1.0" in config
    run.directory.config.write_text(config.replace("mean_s = 1.0", "mean_s = 0.001"))
    with Run.resume(run.directory.path) as again:
        assert again.wait(timeout_s=240) == "done"
    assert [step.step for step in committed_steps(run.directory, "a")] == list(range(1, 21))


def test_a_cancelled_task_ends_and_the_others_go_on(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("long", steps=ENDLESS), tiny_task("short", steps=4))
    with Run(settings=settings, runs=tmp_path / "runs") as run:
        next(run.steps("long"))
        run.cancel("long")
        assert run.wait(timeout_s=240) == "done"
    assert len(committed_steps(run.directory, "short")) == 4
    assert len(committed_steps(run.directory, "long")) < ENDLESS


def test_a_paused_task_starts_no_step_until_it_goes_on(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("a", steps=ENDLESS), tiny_task("b", steps=12))
    with Run(settings=settings, runs=tmp_path / "runs") as run:
        events = run.events()
        next(e for e in events if getattr(e, "step", 0) == 2 and getattr(e, "task", "") == "a")
        run.pause("a")
        paused_at = len(committed_steps(run.directory, "a"))
        with pytest.raises(PlaitError, match="paused"):
            run.pause("a")
        next(e for e in events if isinstance(e, TaskStateChanged) and e.task == "b" and e.state == "done")
        still = len(committed_steps(run.directory, "a"))
        assert still <= paused_at + 1, "the one that was under way ends"
        run.unpause("a")
        next(e for e in events if isinstance(e, StepCommitted) and e.task == "a" and e.step > still + 1)
        run.cancel("a")
        assert run.wait(timeout_s=240) == "done"
    steps = [step.step for step in committed_steps(run.directory, "a")]
    assert steps == list(range(1, len(steps) + 1))


def test_what_ends_a_run_at_the_start_is_raised(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, tiny_task("a"))
    settings = settings.model_copy(update={"model": settings.model.model_copy(update={"device": "cuda"})})
    with Run(settings=settings, runs=tmp_path / "runs") as run, pytest.raises(PlaitError, match="torch sees no CUDA device"):
        run.wait(timeout_s=240)


def test_an_unknown_task_is_named(tmp_path: Path) -> None:
    with Run(settings=tiny_settings(tmp_path, tiny_task("a")), runs=tmp_path / "runs") as run:
        next(run.steps())
        with pytest.raises(KeyError, match="no task 'b'; there are a"):
            run.cancel("b")
