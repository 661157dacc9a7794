"""The workload of `benchmarks.marlaas` on simulated engines of this machine's profile."""

from collections.abc import Sequence

import simpy

from benchmarks.simulation_changes import median_for
from benchmarks.simulation_profile import MachineCosts
from plait.simulation import task_systems
from plait.simulation.lengths import Lengths
from plait.simulation.rollout import SimulatedRollout
from plait.simulation.scenario import TaskSystem
from plait.simulation.systems import MARLAAS_SYSTEMS
from plait.simulation.task_shape import TaskShape
from plait.simulation.tasks import SimulatedTasks
from plait.simulation.trainer import SimulatedTrainer

MARLAAS_NAMES = dict(
    zip(
        ("plait", "sequential", "disaggregated", "synchronous_multi_lora", "plait_without_async", "plait_without_multi_lora"),
        (system.name for system in MARLAAS_SYSTEMS),
        strict=True,
    )
)
SYSTEMS = {system.name: system for system in MARLAAS_SYSTEMS}
STEPS, GROUPS, GROUP_SIZE, MAX_NEW_TOKENS, MEAN_NEW_TOKENS = 5, 2, 8, 64, 58.0
"""Of a task of the real benchmark; the mean as it was measured."""
LONE_UTILISATION, NUM_KINDS = 0.225, 8
LENGTHS = Lengths(median_for(MEAN_NEW_TOKENS, 1.5, MAX_NEW_TOKENS), 1.5, 0.0, MAX_NEW_TOKENS)


def simulate_marlaas(costs: MachineCosts, delays_s: Sequence[float], system: str, numbers: Sequence[int]) -> dict[str, float]:
    """Of the tasks of these numbers; `delays_s` are medians by kind."""
    env = simpy.Environment()
    rollout = _rollout(env, SYSTEMS[system], costs, 1, 64 * 256, 64, 512)
    firsts_s: list[float] = []
    tasks = SimulatedTasks(
        env, rollout, SimulatedTrainer(env, "train", 1 << 30), costs, 0,
        lambda task, step, time_s: firsts_s.append(time_s) if step == 1 else None, manager=task_systems.manager(SYSTEMS[system]),
    )  # fmt: skip
    for number in numbers:
        delay_s = delays_s[number % len(delays_s)]
        tasks.add(TaskShape(f"task-{number}", STEPS, GROUPS, GROUP_SIZE, 32, LENGTHS, delay_s=delay_s, delay_sigma=1.0))
    env.run()
    return {
        "end_to_end_s": tasks.end_s,
        "steps_per_hour": 3600 * STEPS * len(numbers) / tasks.end_s,
        "time_to_first_step_s": sum(firsts_s) / len(firsts_s),
    }


def marlaas_delays_s(costs: MachineCosts) -> list[float]:
    """By kind: the median delay with which its first task, alone, keeps its rollout worker busy for the wanted share."""
    return [_delay_s(costs, kind) for kind in range(NUM_KINDS)]


def _delay_s(costs: MachineCosts, kind: int) -> float:
    decode_s = STEPS * (MAX_NEW_TOKENS * costs.decode_step_s(GROUPS * GROUP_SIZE, 0) + GROUPS * costs.prefill_s(32))
    low, high = 0.0, 2.0
    for _ in range(8):
        middle = (low + high) / 2
        share = decode_s / simulate_marlaas(costs, [middle], "disaggregated", [kind])["end_to_end_s"]
        low, high = (middle, high) if share > LONE_UTILISATION else (low, middle)
    return high


def _rollout(
    env: simpy.Environment,
    system: TaskSystem,
    costs: MachineCosts,
    num_engines: int,
    cache_tokens: int,
    max_rows: int,
    chunk_tokens: int,
) -> SimulatedRollout:
    names = [f"engine-{number}" for number in range(num_engines)]
    return SimulatedRollout(
        env, task_systems.scheduler(system, names), dict.fromkeys(names, costs), cache_tokens, max_rows, chunk_tokens,
        kind=task_systems.engine_kind(system), is_staged=system.staged,
    )  # fmt: skip
