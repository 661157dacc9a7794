"""Whole tasks in simulated time."""

from collections import Counter

import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.rollout.context_scheduler import ContextScheduler
from plait.simulation.costs import RooflineCosts
from plait.simulation.hardware import accelerator
from plait.simulation.lengths import Lengths
from plait.simulation.model_shapes import model_shape
from plait.simulation.rollout import SimulatedRollout
from plait.simulation.task_shape import TaskShape
from plait.simulation.tasks import SimulatedTasks
from plait.simulation.trainer import SimulatedTrainer

LENGTHS = Lengths(median_tokens=200, sigma=0.7, correlation=0.7, max_tokens=2000)


def run(*shapes: TaskShape, seed: int = 0) -> tuple[float, list[tuple[str, int, float]]]:
    env = simpy.Environment()
    costs = RooflineCosts(accelerator("H100"), model_shape("Qwen3-0.6B"), trained_share=0.01)
    rollout = SimulatedRollout(env, ContextScheduler(), {"e0": costs, "e1": costs}, 400_000, 64, 256)
    steps: list[tuple[str, int, float]] = []
    trainer = SimulatedTrainer(env, "train", 16_384)
    tasks = SimulatedTasks(env, rollout, trainer, costs, seed, lambda *step: steps.append(step))
    for shape in shapes:
        tasks.add(shape)
    env.run()
    assert tasks.manager.all_ended
    return env.now, steps


def shape(name: str, **changes: object) -> TaskShape:
    values = {"steps": 3, "groups_per_step": 4, "group_size": 8, "prompt_tokens": 100, "lengths": LENGTHS, "delay_s": 1.0}
    return TaskShape(name, **(values | changes))  # type: ignore[arg-type]


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 1000))
def test_every_task_takes_its_steps_in_order_and_a_seed_gives_one_history(num_tasks: int, turns: int, seed: int) -> None:
    shapes = [shape(f"t{i}", turns=turns, arrival_s=2.0 * i) for i in range(num_tasks)]
    end_s, steps = run(*shapes, seed=seed)
    assert Counter(task for task, _, _ in steps) == {f"t{i}": 3 for i in range(num_tasks)}
    for name in {task for task, _, _ in steps}:
        assert [step for task, step, _ in steps if task == name] == [1, 2, 3]
    assert [time_s for _, _, time_s in steps] == sorted(time_s for _, _, time_s in steps)
    assert run(*shapes, seed=seed) == (end_s, steps)


def test_tasks_that_wait_for_tools_share_a_cluster_at_almost_no_cost() -> None:
    alone_s, _ = run(shape("t0", delay_s=20.0))
    together_s, _ = run(*(shape(f"t{i}", delay_s=20.0) for i in range(6)))
    assert together_s < 1.6 * alone_s


def test_siblings_are_alike_and_a_group_apart_is_not() -> None:
    one = [LENGTHS.draw("0", "a", sample) for sample in range(200)]
    other = [LENGTHS.draw("0", "b", sample) for sample in range(200)]
    assert one == [LENGTHS.draw("0", "a", sample) for sample in range(200)]
    assert one != other
    assert all(1 <= length <= 2000 for length in one + other)
