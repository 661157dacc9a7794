"""From episodes to training sequences."""

import subprocess
import sys
from typing import Any

import pytest

from plait.config.task import LossSettings
from plait.training.datums import DatumBatch, demonstration_datum, demonstration_datums, sampled_positions, trajectory_datums
from plait.types.datum import Datum
from plait.types.errors import ConfigError
from plait.types.policy import PolicyVersion
from plait.types.trajectory import Segment, Trajectory, TrajectoryBatch

POLICY = PolicyVersion("local", "task", 3)
PPO = LossSettings(kind="ppo")


def given(*tokens: int) -> Segment:
    return Segment(tokens)


def sampled(*tokens: int) -> Segment:
    return Segment(tokens, tuple(-token / 10 for token in tokens), POLICY)


def trajectory(group: int, sample: int, reward: float, *segments: Segment) -> Trajectory:
    return Trajectory("environment", f"e{group}", group, sample, segments or (given(1, 2), sampled(3, 4)), reward, "stop_token")


def datums_of(*trajectories: Trajectory, loss: LossSettings = PPO, **changes: Any) -> DatumBatch:
    arguments: dict[str, Any] = {"advantage": "group_centred", "loss": loss, "temperature": 0.7} | changes
    return trajectory_datums(TrajectoryBatch("local", "task", 4, trajectories), **arguments)


def test_two_turns_by_hand() -> None:
    two_turns = (given(1, 2), sampled(3, 4), given(5), sampled(6), given(7, 8))
    batch = datums_of(trajectory(0, 0, 1.0, *two_turns), trajectory(0, 1, 0.0, given(1, 2), sampled(9)))
    first, second = batch.datums
    w = 1 / 4  # four sampled tokens
    assert first.tokens == (1, 2, 3, 4, 5)
    assert first.target_tokens == (2, 3, 4, 5, 6)
    assert first.weights == (0, w, w, 0, w)
    assert first.logprobs == (0, -0.3, -0.4, 0, -0.6)
    assert first.advantages == (0, 0.5 * w, 0.5 * w, 0, 0.5 * w)
    assert first.temperature == 0.7
    assert second == Datum((1, 2), (2, 9), (0, w), (0, -0.9), (0, -0.5 * w), 0.7)
    assert (batch.num_sequences, batch.num_sampled_tokens, batch.num_trained_tokens) == (2, 4, 4)


def test_groups_without_gradient_are_left_out_and_counted_but_stay_in_the_normaliser() -> None:
    dead = [trajectory(0, i, 1.0) for i in range(3)]
    alive = [trajectory(1, i, float(i)) for i in range(2)]
    batch = datums_of(*dead, *alive)
    assert len(batch.datums) == 2
    assert (batch.num_groups, batch.num_groups_without_gradient) == (2, 1)
    assert batch.datums[0].weights[-1] == 1 / 10
    assert (batch.num_sampled_tokens, batch.num_trained_tokens) == (10, 4)


def test_a_step_of_dead_groups_has_no_datums() -> None:
    batch = datums_of(*[trajectory(g, i, 0.0) for g in range(2) for i in range(2)], trajectory(2, 0, 5.0))
    assert batch.datums == ()
    assert batch.num_groups_without_gradient == 3


def test_a_penalty_keeps_every_answer() -> None:
    loss = LossSettings(kind="ppo", kl_to_base=0.1)
    batch = datums_of(trajectory(0, 0, 1.0), trajectory(0, 1, 1.0), loss=loss)
    assert len(batch.datums) == 2
    assert batch.num_groups_without_gradient == 0


def test_answers_that_cannot_move_weights_are_left_out() -> None:
    batch = datums_of(trajectory(0, 0, 1.0), trajectory(0, 1, 0.0), advantage="raw")
    assert len(batch.datums) == 1
    assert len(datums_of(trajectory(0, 0, 1.0), trajectory(0, 1, 0.0), advantage="raw", loss=LossSettings(kind="dro")).datums) == 2


def test_cross_entropy_takes_advantages_as_weights() -> None:
    batch = datums_of(trajectory(0, 0, 1.0), trajectory(0, 1, 0.0), loss=LossSettings(kind="cross_entropy"))
    assert [datum.weights for datum in batch.datums] == [(0, 0.125, 0.125), (0, -0.125, -0.125)]


def test_nothing_sampled() -> None:
    batch = datums_of(trajectory(0, 0, 1.0, given(1, 2)), trajectory(0, 1, 0.0, given(1, 2)))
    assert batch.datums == ()
    with pytest.raises(ConfigError, match="begins with a sampled token"):
        datums_of(trajectory(0, 0, 1.0, sampled(1, 2)), trajectory(0, 1, 0.0))


def test_demonstrations() -> None:
    batch = demonstration_datums([([1, 2], [3, 4]), ([1], [2], [3, 3], [4])])
    assert [datum.weights for datum in batch.datums] == [(0, 0.25, 0.25), (0.25, 0, 0, 0.25)]
    assert batch.datums[1].target_tokens == (2, 3, 3, 4)
    assert batch.num_trained_tokens == 4
    wrong: list[tuple[list[int], ...]] = [([], [1]), ([1], []), ([1], [2], [3])]
    for spans in wrong:
        with pytest.raises(ConfigError, match="a demonstration has spans"):
            demonstration_datum(*spans)


def test_sampled_positions_without_weights_follow_the_advantages() -> None:
    assert sampled_positions(Datum((1, 2, 3), (2, 3, 4), advantages=(0, 1, 0), logprobs=(0, -1, 0))) == [1]
    assert sampled_positions(Datum((1, 2), (2, 3), logprobs=(-1, -1))) == [0, 1]


def test_planning_needs_no_torch() -> None:
    modules = "import plait.training.datums, plait.training.packing, plait.training.schedule, plait.training.advantages"
    subprocess.run([sys.executable, "-c", f"{modules}; import sys; assert 'torch' not in sys.modules"], check=True)
