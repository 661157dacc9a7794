"""The workloads of `benchmarks.seer` on simulated engines, with what calls of its model took by themselves on this machine."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import simpy
from msgspec.structs import replace

from benchmarks.seer_workload import PROMPT_TOKENS, SHAPES, Workload, make_workload
from benchmarks.simulation_found import Row
from benchmarks.simulation_scores import compared, measured
from benchmarks.simulation_seer_profile import PROFILE
from plait.rollout.request import GenerationRequest
from plait.simulation import task_systems
from plait.simulation.costs import CostModel
from plait.simulation.light_request import light_request
from plait.simulation.measured_costs import MeasuredCosts, profile_costs
from plait.simulation.profile import Profile
from plait.simulation.rollout import SimulatedRollout
from plait.simulation.scenario import TaskSystem
from plait.simulation.systems import SEER_SYSTEMS
from plait.types.policy import PolicyVersion

SYSTEMS = {system.name: system for system in SEER_SYSTEMS}
CASES = {
    "tiny moonlight": ("moonlight", 32),
    "tiny qwen2-vl": ("qwen2-vl", 16),
    "tiny kimi-k2": ("kimi-k2", 32),
    "tiny, one engine": ("moonlight", 16),
}
"""Case -> (shape, groups)."""
CHUNK_TOKENS, VOCABULARY, SEED, MAX_ROWS = 32, 384, 7, 256
"""Of the real benchmark."""
QUICK_SHARE = 0.3
FITTED = {"system": "pinned groups", "cache_share": 2.0}
FIGURES = ("tokens_per_s", "completion_s")
TEXTS = (
    "seer: decode steps, prompts and ends of chunks are measured alone (`benchmarks.simulation_seer_profile`). One number is "
    "fitted for each number of engines: how much slower the whole run was, by pinned groups with ample memory (not scored).",
    "seer: not in the simulation: messages, and the controller, which shares the two cores with the engines.",
)


def seer_rows(is_quick: bool) -> Iterator[Row]:
    found = [row for row in measured("seer") if row.get("case") in CASES and _is_simulated(row.get("system", ""))]
    costs = {
        number: slowed_costs(profile_costs(str(PROFILE)).profile, found, number) for number in {row["engines"] for row in found}
    }
    for row in found:
        if is_quick and row["cache_share"] != QUICK_SHARE:
            continue
        simulated = simulate_seer(costs[row["engines"]], row)
        for figure in (*FIGURES, "last_tenth_s"):
            case = f"seer, {row['case']}, cache {row['cache_share']:.0%}"
            yield compared(case, row["system"], figure, row[figure], simulated[figure], _is_fitted(row))


def slowed_costs(profile: Profile, rows: Sequence[Mapping[str, Any]], num_engines: int) -> MeasuredCosts:
    """As much slower than a profile as the fitted rows took longer than is foreseen from it."""
    costs = MeasuredCosts(profile)
    fitted = [row for row in rows if row["engines"] == num_engines and _is_fitted(row)]
    factor = fmean(row["completion_s"] / simulate_seer(costs, row)["completion_s"] for row in fitted)
    return MeasuredCosts(slower(profile, factor))


def slower(profile: Profile, factor: float) -> Profile:
    """What rollouts take of it, so many times."""
    kinds = ("decode", "prefill", "resume")
    points = {kind: tuple(replace(point, seconds=factor * point.seconds) for point in getattr(profile, kind)) for kind in kinds}
    return replace(profile, **points, fetch_tokens_per_s=profile.fetch_tokens_per_s / factor)


def _is_simulated(system: str) -> bool:
    """How often drafts come true of a model that is not trained, nobody can foresee."""
    return system in SYSTEMS and SYSTEMS[system].engine != "drafting"


def _is_fitted(row: Mapping[str, Any]) -> bool:
    return all(row[key] == value for key, value in FITTED.items())


def simulate_seer(costs: CostModel, row: Mapping[str, Any]) -> dict[str, float]:
    """`row`: of the real benchmark; what it measured is not looked at."""
    (shape_name, num_groups), system, num_engines = CASES[row["case"]], SYSTEMS[row["system"]], row["engines"]
    shape = next(one for one in SHAPES if one.name == shape_name)
    once = make_workload(shape, num_groups, VOCABULARY, SEED)
    workload = make_workload(shape, system.over_issue * num_groups, VOCABULARY, SEED)
    cache_tokens = max(int(row["cache_share"] * once.peak_tokens / num_engines), once.longest_tokens)
    env, names = simpy.Environment(), [f"engine-{number}" for number in range(num_engines)]
    rollout = SimulatedRollout(
        env, task_systems.scheduler(system, names), dict.fromkeys(names, costs), cache_tokens, MAX_ROWS, CHUNK_TOKENS,
        kind=task_systems.engine_kind(system), is_staged=system.staged,
    )  # fmt: skip
    return _serve(env, rollout, system, workload, len(once.requests))


def _serve(
    env: simpy.Environment, rollout: SimulatedRollout, system: TaskSystem, workload: Workload, wanted: int
) -> dict[str, float]:
    ended: list[tuple[float, int]] = []

    def done(request: GenerationRequest) -> None:
        ended.append((env.now, len(request.tokens)))

    for request in workload.requests:
        group = "" if system.knows_lengths else request.group
        most = request.length if system.knows_lengths else workload.shape.max_tokens
        policy = PolicyVersion("local", "benchmark", 0)
        light = light_request(request.request_id, "benchmark", policy, PROMPT_TOKENS, most, group, request.group)
        rollout.submit(light, request.length, done)
    while len(ended) < wanted and env.peek() < float("inf"):
        env.step()
    counted = ended[:wanted]
    end_s = counted[-1][0]
    return {
        "completion_s": end_s,
        "tokens_per_s": sum(tokens for _, tokens in counted) / end_s,
        "last_tenth_s": end_s - counted[int(0.9 * wanted) - 1][0],
    }
