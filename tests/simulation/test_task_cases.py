"""Simulated tasks by hand: turns, what is issued beyond what is kept, and delays by seed."""

from typing import Any

import pytest

from plait.simulation.lengths import Lengths
from plait.simulation.task_shape import TaskShape
from tests.simulation.test_task_laws import LENGTHS, Watched, lengths_of

EQUAL = Lengths(median_tokens=12, sigma=0.0, correlation=0.0, max_tokens=40)


def ran(shape: TaskShape, **options: Any) -> Watched:
    run = Watched("own", **options)
    run.run([shape])
    return run


def test_a_turn_finds_all_but_what_the_environment_said() -> None:
    """The prompt is computed once for both siblings, an observation by each."""
    run = ran(TaskShape("a", 1, 1, 2, 20, LENGTHS, turns=2, observation_tokens=5))
    assert run.rollout.caches.counts.computed_tokens == 20 + 2 * 5
    assert run.steps[0].num_tokens == 20 + 2 * 5 + sum(lengths_of(TaskShape("a", 1, 1, 2, 20, LENGTHS, turns=2), 1, 0))


def test_of_twice_the_groups_the_ones_that_end_first_are_kept_and_the_others_end_at_once() -> None:
    shape = TaskShape("a", 1, 1, 1, 20, LENGTHS)
    issued = [LENGTHS.draw("1", f"a/1/{group}", 0) for group in range(2)]
    assert issued[0] > issued[1] + 1
    run = ran(shape, over_issue=2, seed=1)
    assert run.steps[0].num_tokens == 20 + issued[1]
    assert run.rollout.engines["e0"].num_decoded_tokens <= 2 * (issued[1] + 1)
    assert run.tasks.end_s < ran(shape, seed=1).tasks.end_s


def test_delays_are_drawn_by_the_seed_around_their_median() -> None:
    def rollout_s(seed: int, sigma: float) -> float:
        step = ran(TaskShape("a", 1, 1, 1, 20, EQUAL, delay_s=100.0, delay_sigma=sigma), seed=seed).steps[0]
        return step.ready_s - step.start_s

    generated_s = rollout_s(0, 0.0) - 100.0
    drawn_s = sorted(rollout_s(seed, 0.5) - generated_s for seed in range(40))
    assert drawn_s[0] < drawn_s[-1]
    assert drawn_s[20] == pytest.approx(100.0, rel=0.3)
    assert rollout_s(3, 0.5) == rollout_s(3, 0.5)


def test_the_tail_begins_when_a_tenth_of_the_episodes_is_left() -> None:
    run = ran(TaskShape("a", 1, 5, 4, 2, LENGTHS), num_engines=4)
    ends_s = sorted(end_s for _, end_s, _ in run.requests["a", 1])
    assert run.steps[0].tail_start_s == ends_s[17]
