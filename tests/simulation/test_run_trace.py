"""What is read of a run whose episodes have turns, whose steps may be stale and whose environments take time; and its replay."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from plait.observe import events as e
from plait.observe.log import EventLog
from plait.simulation.recorded_lengths import correlation
from plait.simulation.replay import Changes, replay
from plait.simulation.run_trace import RunTrace, read_trace
from plait.simulation.simulate import simulate
from plait.simulation.task_shape import TaskShape
from plait.state.rundir import RunDirectory
from plait.state.samples import SampleRecord, write_samples
from plait.types.policy import PolicyVersion
from plait.types.trajectory import Segment, Trajectory
from tests.simulation.test_task_laws import LENGTHS

POLICY = PolicyVersion("local", "talk", 0)
CONFIG = "[[tasks]]\nname = 'talk'\ngroups_per_step = 2\ngroup_size = 2\nmax_staleness = 2\n"
STEPS: tuple[dict[int, list[tuple[int, ...]]], ...] = (
    {0: [(5, 7), (9, 11)], 1: [(2, 3), (4, 1)]},
    {0: [(6, 6), (8,)], 1: [(1, 2, 3), (10, 12)]},
)
"""By step and group, what was drawn in each turn."""


def trajectory(group: int, drawn: Sequence[int], prompt: int = 30, observation: int = 4) -> Trajectory:
    segments = [Segment((1,) * prompt)]
    for number, num_tokens in enumerate(drawn):
        segments += [Segment((1,) * observation)] if number else []
        segments.append(Segment((1,) * num_tokens, (0.0,) * num_tokens, POLICY))
    return Trajectory("e", "x", group, 0, tuple(segments), reward=0.0, stop="stop")


def committed(step: int, time_s: float) -> e.StepCommitted:
    return e.StepCommitted(
        time_s=time_s, task="talk", step=step, adapter_digest="", loss=0.0, grad_norm=0.0, learning_rate=0.0, num_sequences=4,
        num_trained_tokens=1, rollout_s=20.0, environment_s=6.0, queued_s=3.0, training_s=11.0,
    )  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> RunTrace:
    directory = RunDirectory.create(tmp_path, "run", CONFIG)
    with EventLog(directory.events) as log:
        for number, groups in enumerate(STEPS, 1):
            records = [
                SampleRecord("talk", number, trajectory(group, drawn), "", ()) for group, rows in groups.items() for drawn in rows
            ]
            path = directory.samples_file("talk", number)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_samples(path, records)
            log.append(committed(number, 100.0 + 50 * number))
    return read_trace(directory)


def test_turns_observations_and_delays_are_those_of_the_run(trace: RunTrace) -> None:
    (task,) = trace.tasks
    assert (task.turns, task.observation_tokens, task.prompt_tokens, task.max_staleness) == (2, 4, 30, 2)
    assert (task.groups_per_step, task.group_size, task.delay_s) == (2, 2, 3.0)
    assert task.steps == tuple(tuple(map(tuple, groups.values())) for groups in STEPS)
    assert (trace.num_steps, trace.duration_s) == (2, 200.0 - (150.0 - 40.0))


def shapes_of(trace: RunTrace, copies: int) -> list[TaskShape]:
    found = replay(trace, Changes(model="tiny", copies=copies))
    return [shape for _, shapes in found.kinds for shape in shapes]


def test_a_copy_begins_at_another_step_and_all_are_as_stale(trace: RunTrace) -> None:
    shapes = shapes_of(trace, 2)
    assert [shape.max_staleness for shape in shapes] == [2, 2]
    assert [shape.lengths.draw("0", f"{shape.name}/1/0", 0) for shape in shapes] == [5, 6]
    assert [shape.lengths.draw("0", f"{shape.name}/2/0", 0) for shape in shapes] == [6, 5]
    first = shapes[0].lengths
    turns = [[first.draw("0", "talk-1/1/0", sample + 2 * turn) for turn in range(2)] for sample in range(2)]
    assert turns == [[5, 7], [9, 11]]


def test_all_turns_are_drawn_again_on_other_hardware(trace: RunTrace) -> None:
    found = replay(trace, Changes(model="tiny", accelerator="A100", devices=3))
    total = sum(sum(drawn) for groups in STEPS for rows in groups.values() for drawn in rows)
    for system in simulate(found.scenario, "run", kinds=found.kinds).systems:
        makespan_s, rate = system.figures["makespan_s"], system.figures["tokens_per_s"]
        assert makespan_s is not None
        assert rate is not None
        assert makespan_s * rate == pytest.approx(total)
        assert makespan_s > 2 * 3.0, "environments take their time"


def test_drawn_lengths_are_as_correlated_and_as_spread_as_asked() -> None:
    logs = [[math.log(LENGTHS.draw("7", str(group), sample)) for sample in range(8)] for group in range(400)]
    assert correlation(logs) == pytest.approx(LENGTHS.correlation, abs=0.08)
