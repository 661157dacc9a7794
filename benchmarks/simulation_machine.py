"""The real benchmarks' workloads on simulated engines of this machine's profile."""

from collections.abc import Sequence

import msgspec
import simpy

from benchmarks.seer_workload import PROMPT_TOKENS, SHAPES, Workload, make_workload
from benchmarks.simulation_changes import median_for
from benchmarks.simulation_profile import CHUNK_TOKENS, SEED, VOCABULARY, MachineCosts, Row
from plait.rollout.request import GenerationRequest
from plait.simulation import task_systems
from plait.simulation.lengths import Lengths
from plait.simulation.light_request import light_request
from plait.simulation.rollout import SimulatedRollout
from plait.simulation.scenario import TaskSystem
from plait.simulation.systems import MARLAAS_SYSTEMS, SEER_SYSTEMS
from plait.simulation.task_shape import TaskShape
from plait.simulation.tasks import SimulatedTasks
from plait.simulation.trainer import SimulatedTrainer
from plait.types.chunks import Chunk
from plait.types.policy import PolicyVersion

MARLAAS_NAMES = dict(
    zip(
        ("plait", "sequential", "disaggregated", "synchronous_multi_lora", "plait_without_async", "plait_without_multi_lora"),
        (system.name for system in MARLAAS_SYSTEMS),
        strict=True,
    )
)
SYSTEMS = {system.name: system for system in (*MARLAAS_SYSTEMS, *SEER_SYSTEMS)}
SEER_CASES = {
    "tiny moonlight": ("moonlight", 32),
    "tiny qwen2-vl": ("qwen2-vl", 16),
    "tiny kimi-k2": ("kimi-k2", 32),
    "tiny, one engine": ("moonlight", 16),
}
"""Case -> (shape, groups)."""
CHUNK_ROW = {"case": "tiny, one engine", "system": "+ divided", "cache_share": 0.3}
STEPS, GROUPS, GROUP_SIZE, MAX_NEW_TOKENS, MEAN_NEW_TOKENS = 5, 2, 8, 64, 58.0
"""Of a task of the real benchmark; the mean as it was measured."""
LONE_UTILISATION, NUM_KINDS = 0.225, 8
MAX_ROWS = 256
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


def simulate_seer(costs: MachineCosts, case: str, system: str, num_engines: int, cache_share: float) -> dict[str, float]:
    shape, num_groups = SEER_CASES[case]
    settings = SYSTEMS[system]
    chosen = next(one for one in SHAPES if one.name == shape)
    once = make_workload(chosen, num_groups, VOCABULARY, SEED)
    workload = make_workload(chosen, settings.over_issue * num_groups, VOCABULARY, SEED)
    cache_tokens = max(int(cache_share * once.peak_tokens / num_engines), once.longest_tokens)
    found = _serve(costs, settings, workload, num_engines, cache_tokens, len(once.requests))
    if settings.scheduler == "pinned" or not costs.chunk_s:
        return found
    costs = costs.divided(found["num_tokens"] / found["num_chunks"])
    return _serve(costs, settings, workload, num_engines, cache_tokens, len(once.requests))


def with_chunks(costs: MachineCosts, rows: Sequence[Row]) -> MachineCosts:
    """What a chunk's end takes: by what division takes longer than foreseen without it, where one engine has little memory. With
    ample memory chunks go on past their budgets, and hardly any ends."""
    row = next(row for row in rows if all(row.get(key) == value for key, value in CHUNK_ROW.items()))
    found = simulate_seer(costs, row["case"], row["system"], row["engines"], row["cache_share"])
    chunk_s = (row["completion_s"] - found["completion_s"]) / found["num_chunks"]
    return msgspec.structs.replace(costs, chunk_s=max(0.0, chunk_s))


class CountingRollout(SimulatedRollout):
    num_chunks = 0
    """That have ended."""

    def _on_ended(self, engine: str, chunk: Chunk, drawn: int, is_last: bool) -> None:
        self.num_chunks += 1
        super()._on_ended(engine, chunk, drawn, is_last)


def _serve(
    costs: MachineCosts, system: TaskSystem, workload: Workload, num_engines: int, cache_tokens: int, wanted: int
) -> dict[str, float]:
    env = simpy.Environment()
    rollout = _rollout(env, system, costs, num_engines, cache_tokens, MAX_ROWS, CHUNK_TOKENS)
    ended: list[tuple[float, int]] = []

    def done(request: GenerationRequest) -> None:
        ended.append((env.now, len(request.tokens)))

    for request in workload.requests:
        group = "" if system.knows_lengths else request.group
        most = request.length if system.knows_lengths else workload.shape.max_tokens
        policy = PolicyVersion("local", "benchmark", 0)
        rollout.submit(light_request(request.request_id, "benchmark", policy, PROMPT_TOKENS, most, group), request.length, done)
    while len(ended) < wanted and env.peek() < float("inf"):
        env.step()
    counted = ended[:wanted]
    end_s = counted[-1][0]
    return {
        "completion_s": end_s,
        "tokens_per_s": sum(tokens for _, tokens in counted) / end_s,
        "last_tenth_s": end_s - counted[int(0.9 * wanted) - 1][0],
        "num_tokens": sum(tokens for _, tokens in ended),
        "num_chunks": rollout.num_chunks,
    }


def _rollout(
    env: simpy.Environment,
    system: TaskSystem,
    costs: MachineCosts,
    num_engines: int,
    cache_tokens: int,
    max_rows: int,
    chunk_tokens: int,
) -> CountingRollout:
    names = [f"engine-{number}" for number in range(num_engines)]
    return CountingRollout(
        env, task_systems.scheduler(system, names), dict.fromkeys(names, costs), cache_tokens, max_rows, chunk_tokens,
        kind=task_systems.engine_kind(system), is_staged=system.staged,
    )  # fmt: skip
