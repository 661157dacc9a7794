import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.observe.events import decode_event, encode_event
from plait.tasks.batch_events import batch_event, mean_and_deviation
from plait.types.policy import PolicyVersion
from plait.types.trajectory import Segment, Trajectory, TrajectoryBatch

POLICY = PolicyVersion("local", "sums", 2)
values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)


def trajectory(reward: float, stop: str = "stop_token", num_sampled: int = 2, **metrics: float) -> Trajectory:
    segments = (Segment((1, 2, 3)), Segment((4,) * num_sampled, (-1.0,) * num_sampled, POLICY))
    return Trajectory("sums", "0", 0, 0, segments, reward, stop, metrics)


def batch(*trajectories: Trajectory) -> TrajectoryBatch:
    return TrajectoryBatch("local", "sums", 3, trajectories, num_dropped_groups=1)


@given(values)
def test_mean_and_deviation_are_those_of_the_plain_formulas(numbers: list[float]) -> None:
    mean, deviation = mean_and_deviation(numbers)
    assert mean is not None
    assert deviation is not None
    assert min(numbers) - 1e-6 <= mean <= max(numbers) + 1e-6
    squares = sum((number - mean) ** 2 for number in numbers) / len(numbers)
    assert math.isclose(deviation, math.sqrt(squares), rel_tol=1e-6, abs_tol=1e-6)


@given(values, st.lists(st.sampled_from([math.nan, math.inf, -math.inf]), min_size=1, max_size=3))
def test_what_is_not_finite_is_no_measurement(numbers: list[float], others: list[float]) -> None:
    assert mean_and_deviation(others + numbers) == mean_and_deviation(numbers)
    assert mean_and_deviation(others) == (None, None)


def test_a_batch_tells_its_rewards_stops_and_metrics() -> None:
    event = batch_event(
        batch(trajectory(1.0, right=1.0), trajectory(0.0, "length", 3, right=0.0, turns=2.0), trajectory(0.5, "length")), 9.0
    )
    assert (event.time_s, event.task, event.step) == (9.0, "sums", 3)
    assert event.reward_mean == 0.5
    assert event.reward_std == pytest.approx(math.sqrt(1 / 6))
    assert (event.num_sequences, event.num_sampled_tokens, event.num_dropped_groups) == (3, 7, 1)
    assert event.stop_counts == {"length": 2, "stop_token": 1}
    assert event.environment_metrics == {"right": 0.5, "turns": 2.0}


def test_a_batch_of_nothing_has_no_reward_and_is_logged_as_such() -> None:
    event = batch_event(batch(), 9.0)
    assert (event.reward_mean, event.reward_std, event.num_sequences, event.num_sampled_tokens) == (None, None, 0, 0)
    assert decode_event(encode_event(event)) == event


def test_one_reward_that_is_not_finite_leaves_the_others_theirs() -> None:
    event = batch_event(batch(trajectory(math.nan), trajectory(1.0)), 9.0)
    assert (event.reward_mean, event.reward_std) == (1.0, 0.0)
