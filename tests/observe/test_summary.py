import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.observe import events as e
from plait.observe.summary import RunSummary
from tests.observe.sample_run import START_S, TASK_NAMES, sample_events


def started(time_s: float, resumed: bool = False) -> e.RunStarted:
    return e.RunStarted(
        time_s=time_s, run="r", model="m", dtype="float32", device="cpu", tasks=("a", "b"), workers=("rollout-0", "train-0"),
        batch_invariant=True, plait_version="0", resumed=resumed, total_steps={"a": 10},
    )  # fmt: skip


def step(
    number: int, time_s: float, task: str = "a", reward: float | None = None, tokens: int | None = None, phase: str = "rl"
) -> e.StepCommitted:
    return e.StepCommitted(
        time_s=time_s, task=task, step=number, phase=phase, adapter_digest="", reward_mean=reward, loss=0.0, grad_norm=1.0,
        learning_rate=1e-3, num_sequences=1, num_trained_tokens=1, num_sampled_tokens=tokens,
    )  # fmt: skip


def test_nothing_is_known_before_the_first_event() -> None:
    run = RunSummary().snapshot(5.0)
    assert (run.status, run.steps, run.steps_per_hour, run.time_to_first_step_s, run.remaining_s) == (
        "pending",
        0,
        None,
        None,
        None,
    )
    assert run.tasks == ()


def test_what_was_not_measured_is_none_and_not_zero() -> None:
    summary = RunSummary([started(0.0), step(1, 10.0, phase="warm_start")])
    task, worker = summary.snapshot(12.0).tasks[0], summary.snapshot(12.0).workers[0]
    assert (task.reward_last, task.reward_best, task.tokens_per_s, task.accuracy_before, task.accuracy_last) == (None,) * 5
    assert worker.tokens_per_s is None
    assert (task.warm_start_steps, task.policy_version) == (1, 1)


def test_rewards_accuracy_rates_and_pace() -> None:
    events = [
        started(100.0),
        e.EvaluationDone(time_s=101.0, task="a", version=0, accuracy=0.1, num_questions=64, when="before"),
        step(1, 110.0, reward=0.2, tokens=1000),
        step(2, 120.0, reward=0.6, tokens=1000),
        step(3, 130.0, reward=0.5, tokens=1000),
        e.EvaluationDone(time_s=131.0, task="a", version=3, accuracy=0.5, num_questions=64, when="periodic"),
    ]
    run = RunSummary(events).snapshot(135.0)
    task = run.tasks[0]
    assert (task.reward_last, task.reward_best, task.rewards) == (0.5, 0.6, (0.2, 0.6, 0.5))
    assert (task.accuracy_before, task.accuracy_last, task.accuracy_best) == (0.1, 0.5, 0.5)
    assert task.tokens_per_s == pytest.approx(100.0)
    assert (task.step, task.total_steps, task.time_to_first_step_s) == (3, 10, 10.0)
    assert task.remaining_s == pytest.approx(7 * 10.0 - 5.0)
    assert run.remaining_s is None, "nobody knows how many steps task b has"
    assert run.steps_per_hour == pytest.approx(3 / 35 * 3600)
    assert run.time_to_first_step_s == 10.0


def test_a_step_told_twice_counts_once_with_the_later_numbers() -> None:
    once = [started(0.0), step(1, 10.0, reward=0.2, tokens=100), step(2, 20.0, reward=0.4, tokens=100)]
    summary = RunSummary(
        [*once, started(100.0, resumed=True), step(2, 110.0, reward=0.5, tokens=100), step(3, 120.0, reward=0.6, tokens=100)]
    )
    run = summary.snapshot(120.0)
    assert run.steps == 3
    assert run.tasks[0].rewards == (0.2, 0.5, 0.6)
    assert run.num_starts == 2


def test_the_time_between_interruption_and_resume_is_neither_busy_nor_idle() -> None:
    events = [
        started(0.0),
        e.WorkerSpan(time_s=10.0, worker="train-0", start_s=0.0),
        started(1000.0, resumed=True),
        e.WorkerSpan(time_s=1010.0, worker="train-0", start_s=1000.0),
    ]
    run = RunSummary(events).snapshot(1020.0)
    train = run.workers[1]
    assert run.active_s == 30.0
    assert train.utilisation == pytest.approx(20 / 30)
    assert train.utilisation_recent == pytest.approx(0.5)
    assert (train.num_idle_spans, train.idle_s) == (0, 10.0)


def test_after_the_end_the_clock_stands_still() -> None:
    summary = RunSummary([started(0.0), step(1, 10.0), e.RunEnded(time_s=20.0, status="done")])
    assert summary.snapshot(25.0) == summary.snapshot(9e9)
    assert summary.snapshot(9e9).active_s == 20.0


def test_the_phase_is_what_follows_the_span_that_ended_last() -> None:
    summary = RunSummary([started(0.0), e.TaskStateChanged(time_s=0.0, task="a", state="running")])
    seen = []
    for phase in ("evaluation", "rollout", "environment", "queued", "training"):
        summary.apply(e.PhaseSpan(time_s=2.0, task="a", phase=phase, step=1, start_s=1.0))
        seen.append(summary.snapshot(2.0).tasks[0].phase)
    assert seen == ["rollout", "queued", "queued", "training", "rollout"]
    summary.apply(e.PhaseSpan(time_s=3.0, task="a", phase="training", step=10, start_s=2.0))
    assert summary.snapshot(3.0).tasks[0].phase == "evaluation"
    summary.apply(e.TaskStateChanged(time_s=4.0, task="a", state="failed", cause="no luck"))
    task = summary.snapshot(4.0).tasks[0]
    assert (task.state, task.phase, task.cause, task.remaining_s) == ("failed", "", "no luck", 0.0)
    assert task.phase_s["training"] == 2.0


def test_errors_losses_and_notes_are_counted() -> None:
    events: list[e.AnyEvent] = [started(0.0), e.WorkerLost(time_s=1.0, worker="train-0", cause="signal 9")]
    events += [e.RewardError(time_s=2.0, task="a", step=3, example_id=str(n), stage="score", error="boom") for n in range(4)]
    events += [e.Note(time_s=3.0, level="warning", message="slow disk")] * 3
    run = RunSummary(events).snapshot(4.0)
    assert (run.tasks[0].num_errors, run.tasks[0].last_error) == (4, "step 3, score: boom")
    assert run.workers[1].is_lost
    assert [(note.message, note.count) for note in run.notes] == [("worker train-0 was lost: signal 9", 1), ("slow disk", 3)]
    back = RunSummary([*events, e.WorkerSpan(time_s=6.0, worker="train-0", start_s=5.0)])
    assert not back.snapshot(7.0).workers[1].is_lost


def test_a_whole_run() -> None:
    events = list(sample_events())
    run = RunSummary(events).snapshot(START_S + 1e6)
    assert (run.status, run.steps, run.num_starts) == ("done", 60, 2)
    assert {task.task: task.step for task in run.tasks} == dict.fromkeys(TASK_NAMES, 20)
    assert all(task.state == "done" and task.accuracy_last is not None and task.accuracy_last > 0.6 for task in run.tasks)
    assert all(worker.utilisation is not None and 0.3 < worker.utilisation < 1 for worker in run.workers)
    assert 200 < run.active_s < 300


@given(st.permutations(list(sample_events(num_steps=2, resume_after=None))[1:30]))
def test_no_order_of_events_breaks_the_fold(events: list[e.AnyEvent]) -> None:
    run = RunSummary([*events, events[-1]]).snapshot(START_S + 100)
    assert all(0 <= worker.utilisation <= 1 for worker in run.workers if worker.utilisation is not None)
    assert run.steps <= sum(isinstance(event, e.StepCommitted) for event in events)


def test_memory_does_not_grow_with_the_run() -> None:
    summary = RunSummary([started(0.0)])

    def feed(first: int, last: int) -> None:
        for n in range(first, last):
            summary.apply(e.WorkerSpan(time_s=n + 0.5, worker="train-0", start_s=float(n)))
            summary.apply(e.PhaseSpan(time_s=n + 0.5, task="a", phase="rollout", step=n, start_s=float(n)))
            summary.apply(step(n, float(n), reward=0.5, tokens=10))
            summary.apply(e.Note(time_s=float(n), level="warning", message=f"note {n}"))

    feed(1, 2000)
    tracemalloc.start()
    before_bytes, _ = tracemalloc.get_traced_memory()
    feed(2000, 6000)
    after_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after_bytes - before_bytes < 50_000
