"""What must hold of simulated tasks whatever they are: work is done once, nobody does two things at once, causes come first."""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.rollout.context_scheduler import ContextScheduler
from plait.rollout.scheduler import Scheduler
from plait.simulation.baselines import NoPolicy, Policy, police
from plait.simulation.engine_kinds import EngineKind
from plait.simulation.lengths import Lengths
from plait.simulation.pinned_scheduler import PinnedScheduler
from plait.simulation.rollout import SimulatedRollout
from plait.simulation.step_record import StepRecord
from plait.simulation.task_shape import TaskShape
from plait.simulation.tasks import SimulatedTasks
from plait.simulation.trainer import SimulatedTrainer
from tests.simulation.even_costs import EvenCosts

LENGTHS = Lengths(median_tokens=12, sigma=0.8, correlation=0.5, max_tokens=40)
KINDS = {"own": EngineKind(), "drafting": EngineKind(drafts=True), "preempting": EngineKind(preempts=True)}
CACHE_TOKENS, MAX_ROWS, CHUNK_TOKENS, SLICE_TOKENS = 300, 6, 9, 100
Spans = list[tuple[float, float]]


@dataclass
class Watched:
    """A simulation of tasks with all that is told of it."""

    kind: str
    num_engines: int = 1
    over_issue: int = 1
    is_staged: bool = False
    seed: int = 0
    policy: Policy = field(default_factory=NoPolicy)
    scheduler: Scheduler | None = None
    adapts_rows: bool = False
    steps: list[StepRecord] = field(default_factory=list)
    requests: dict[tuple[str, int], list[tuple[float, float, int]]] = field(default_factory=lambda: defaultdict(list))
    spans: dict[str, Spans] = field(default_factory=lambda: defaultdict(list))
    """What each engine, and the trainer, did."""

    def run(self, shapes: list[TaskShape]) -> None:
        self.env, names = simpy.Environment(), [f"e{number}" for number in range(self.num_engines)]
        own = PinnedScheduler(names) if self.kind == "preempting" else ContextScheduler()
        self.rollout = SimulatedRollout(
            self.env, self.scheduler or own, dict.fromkeys(names, EvenCosts()), CACHE_TOKENS, MAX_ROWS, CHUNK_TOKENS, self._busy,
            kind=KINDS[self.kind], is_staged=self.is_staged, adapts_rows=self.adapts_rows,
        )  # fmt: skip
        trainer = SimulatedTrainer(self.env, "trainer", SLICE_TOKENS, self._busy)
        self.tasks = SimulatedTasks(
            self.env, self.rollout, trainer, EvenCosts(), self.seed, on_record=self.steps.append, on_request=self._answered,
            over_issue=self.over_issue, manager=police(self.policy),
        )  # fmt: skip
        for shape in shapes:
            self.tasks.add(shape)
        self.env.run()

    def _busy(self, name: str, start_s: float, end_s: float, what: object) -> None:
        self.spans[name].append((start_s, end_s))

    def _answered(self, task: str, step: int, start_s: float, end_s: float, num_tokens: int) -> None:
        self.requests[task, step].append((start_s, end_s, num_tokens))

    def busy_s(self, name: str) -> float:
        return sum(end_s - start_s for start_s, end_s in self.spans[name])


def lengths_of(shape: TaskShape, step: int, seed: int) -> list[int]:
    """Of all answers of a step."""
    return [
        shape.lengths.draw(str(seed), f"{shape.name}/{step}/{group}", sample + shape.group_size * turn)
        for group in range(shape.groups_per_step) for sample in range(shape.group_size) for turn in range(shape.turns)
    ]  # fmt: skip


@st.composite
def shapes(draw: st.DrawFn) -> list[TaskShape]:
    return [
        TaskShape(
            f"t{number}", draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 20)),
            LENGTHS, delay_s=draw(st.sampled_from([0.0, 3.0])), delay_sigma=draw(st.sampled_from([0.0, 0.5])),
            turns=draw(st.integers(1, 2)), observation_tokens=draw(st.integers(0, 5)), tenant=draw(st.sampled_from(["x", "y"])),
            max_staleness=draw(st.integers(0, 2)), arrival_s=draw(st.integers(0, 30)),
        )
        for number in range(draw(st.integers(1, 3)))
    ]  # fmt: skip


runs = st.builds(
    Watched, st.sampled_from(sorted(KINDS)), st.integers(1, 3), st.sampled_from([1, 1, 2]), st.booleans(), st.integers(0, 99)
)


@settings(deadline=None, max_examples=20)
@given(runs, shapes())
def test_work_is_done_once_by_who_does_nothing_else_after_what_it_follows_from(run: Watched, tasks: list[TaskShape]) -> None:
    run.run(tasks)
    assert run.tasks.manager.all_ended
    for spans in run.spans.values():
        assert all(start_s <= end_s for start_s, end_s in spans)
        assert all(end_s <= start_s + 1e-9 for (_, end_s), (start_s, _) in pairwise(spans))
    for shape in tasks:
        _check_order(run, shape)
        _check_tokens(run, shape)
    trained_s = sum(0.01 * step.num_tokens + 1.5 for step in run.steps)
    assert abs(run.busy_s("trainer") - trained_s) < 1e-6
    _check_that_nothing_is_left(run)


def _check_order(run: Watched, shape: TaskShape) -> None:
    steps = [step for step in run.steps if step.task == shape.name]
    assert [step.step for step in steps] == list(range(1, shape.steps + 1))
    ends_s = [shape.arrival_s, *(step.end_s for step in steps)]
    for step in steps:
        assert step.start_s <= step.tail_start_s <= step.ready_s <= step.train_start_s < step.end_s
        assert step.start_s >= ends_s[max(0, step.step - 1 - shape.max_staleness)]
        assert step.train_start_s >= ends_s[step.step - 1]
        times_s = run.requests[shape.name, step.step]
        assert all(step.start_s <= start_s < end_s for start_s, end_s, _ in times_s)
        assert max(end_s for _, end_s, _ in times_s) <= step.ready_s


def _check_tokens(run: Watched, shape: TaskShape) -> None:
    """Where more is issued than is kept, all that is kept was drawn."""
    num_samples = shape.groups_per_step * shape.group_size
    given_tokens = shape.groups_per_step * shape.prompt_tokens + num_samples * (shape.turns - 1) * shape.observation_tokens
    for step in (step for step in run.steps if step.task == shape.name):
        answered = [num_tokens for _, _, num_tokens in run.requests[shape.name, step.step]]
        assert step.num_sampled_tokens == sum(answered)
        assert step.num_tokens - given_tokens <= step.num_sampled_tokens
        assert len(answered) >= num_samples * shape.turns
        if run.over_issue == 1:
            assert sorted(answered) == sorted(lengths_of(shape, step.step, run.seed))
            assert step.num_tokens - given_tokens == step.num_sampled_tokens


def _check_that_nothing_is_left(run: Watched) -> None:
    rollout = run.rollout
    assert (rollout.scheduler.num_running, rollout.scheduler.num_waiting, rollout.lengths) == (0, 0, {})
    assert (rollout.caches.stored_tokens, rollout.num_finished) == (0, {})
    assert all(state.reserved_tokens == 0 for state in rollout.dispatcher.engines)
    decoded = sum(engine.num_decoded_tokens for engine in rollout.engines.values())
    sampled = sum(step.num_sampled_tokens for step in run.steps)
    assert decoded == sampled if run.over_issue == 1 else decoded >= sampled
    assert all((engine.num_rows, engine.context_tokens) == (0, 0) for engine in rollout.engines.values())
