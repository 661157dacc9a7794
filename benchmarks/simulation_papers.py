"""A paper's scenario, the headline under other assumptions, and for MARLaaS the grid of models and numbers of tasks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import simulation_changes as changes
from benchmarks.common import headline
from benchmarks.simulation_changes import Change
from benchmarks.simulation_found import Found, Row, rows_of
from plait.simulation.load_scenario import Scenario, load_scenario
from plait.simulation.results import ScenarioResult
from plait.simulation.simulate import simulate


@dataclass(frozen=True, slots=True)
class Paper:
    """`figure` of `system` over that of `base` is its headline (inverse: the other way round), which `others` change."""

    figure: str
    system: str
    base: str
    others: Mapping[str, Change]
    quick_factor: int
    inverse: bool = False


SEER_CHANGES: dict[str, Change] = {
    "siblings as unlike as half of the variance": changes.with_lengths(correlation=0.5),
    "siblings almost alike (95 % of the variance)": changes.with_lengths(correlation=0.95),
    "lengths with a sigma of 0.7": changes.with_lengths(sigma=0.7),
    "chunks of 2 048 tokens instead of 8 192": changes.with_rollout(chunk_tokens=2048),
}
PAPERS: dict[str, Paper] = {
    "marlaas": Paper(
        "steps_per_hour", "plait", "one at a time",
        {
            "32 groups a step instead of 8": changes.with_tasks(lambda task: {"groups_per_step": 4 * task.groups_per_step}),
            "tools and verifiers that answer at once": changes.with_tasks(lambda task: {"delay_s": 0.0}),
            "tools and verifiers three times slower": changes.with_tasks(lambda task: {"delay_s": 3 * task.delay_s}),
            "8 devices train instead of 16": changes.with_training_devices(8),
        },
        quick_factor=4,
    ),
    "seer-moonlight": Paper(
        "rollout_tokens_per_s", "context", "pinned groups",
        SEER_CHANGES
        | {
            "a cache of 300 000 tokens": changes.with_rollout(cache_tokens=300_000),
            "a cache of all that weights leave": changes.with_rollout(cache_tokens=0),
        },
        quick_factor=8,
    ),
    "seer-qwen2vl": Paper(
        "rollout_tokens_per_s", "context", "pinned groups",
        SEER_CHANGES | {"half the cache": changes.with_rollout(cache_tokens=600_000)}, quick_factor=8,
    ),
    "seer-k2": Paper(
        "rollout_tokens_per_s", "context", "pinned groups",
        SEER_CHANGES | {"weights of eight bits: a cache of 15 million tokens": changes.with_rollout(cache_tokens=15_000_000)},
        quick_factor=4,
    ),
    "plexrl-2048": Paper(
        "makespan_s", "spread + backfill", "isolated",
        {
            "half of a job's devices train": changes.with_even_split,
            "training half as long": changes.with_part("train", seconds=0.5),
            "training half as long again": changes.with_part("train", seconds=1.5),
            "a slowdown of 1.1 at most": changes.with_jobs(lambda job: {"slo": 1.1}),
            "a slowdown of 2 at most": changes.with_jobs(lambda job: {"slo": 2.0}),
        },
        quick_factor=4,
    ),
}  # fmt: skip
MARLAAS_MODELS = {"Qwen3-0.6B": 1, "Qwen3-14B": 4, "Qwen3-32B": 8}
"""Devices of an engine."""
MARLAAS_TASKS = (1, 2, 4, 8, 16, 32)
SPLIT = "one at a time, split"
UTILISATION = 4.3
"""Times as much, at most: the paper's."""


def run_paper(name: str, is_quick: bool) -> Found:
    paper, scenario = PAPERS[name], load_scenario(name)
    if is_quick:
        scenario = changes.smaller(paper.quick_factor)(scenario)
    result = simulate(scenario, name)
    rows = [*rows_of(result), *_sensitivity(paper, scenario, result)]
    if name == "marlaas":
        grid = list(_grid(scenario, is_quick))
        rows += [_best_utilisation(grid), *grid]
    return Found(rows, _headlines(result))


def _sensitivity(paper: Paper, scenario: Scenario, result: ScenarioResult) -> Iterator[Row]:
    first = {"figure": paper.figure, "system": paper.system, "over": paper.base}
    yield {"kind": "sensitivity", "assumption": "as above", **first, "value": _ratio(paper, result)}
    for text, change in paper.others.items():
        other = simulate(changes.with_systems((paper.system, paper.base))(change(scenario)), "")
        yield {"kind": "sensitivity", "assumption": text, **first, "value": _ratio(paper, other)}


def _ratio(paper: Paper, result: ScenarioResult) -> float:
    found = {system.name: system.figures[paper.figure] or 0.0 for system in result.systems}
    return float(f"{found[paper.system] / found[paper.base]:.6g}")


def _grid(scenario: Scenario, is_quick: bool) -> Iterator[Row]:
    """For each model and number of tasks, Plait against one task after another."""
    wanted = ("plait", "one at a time", SPLIT, "synchronous multi-LoRA")
    for model, per_engine in list(MARLAAS_MODELS.items())[: 1 if is_quick else None]:
        for num_tasks in MARLAAS_TASKS[:: 3 if is_quick else 1]:
            change = changes.with_task_count(num_tasks)(changes.with_model(model, per_engine)(scenario))
            result = simulate(changes.with_systems(wanted)(change), "")
            for system in result.systems:
                figures = _chosen(system.figures, ("steps_per_hour", "makespan_s", "first_step_s", "utilisation"))
                yield {"kind": "grid", "model": model, "tasks": num_tasks, "system": system.name, **figures}


def _best_utilisation(grid: Sequence[Row]) -> Row:
    """The paper says "up to", and not for which model and number of tasks."""
    shares = {(row["model"], row["tasks"], row["system"]): row["utilisation"] for row in grid}
    ratios = {
        (model, tasks): share / shares[model, tasks, SPLIT] for (model, tasks, name), share in shares.items() if name == "plait"
    }
    (model, tasks), best = max(ratios.items(), key=lambda item: item[1])
    what = f"utilisation of all devices, over one at a time, split, at most ({model}, {tasks} tasks)"
    found = {"ours": best, "difference": best / UTILISATION - 1}
    rounded = {name: float(f"{value:.6g}") for name, value in found.items()}
    return {"kind": "paper", "what": what, "low": UTILISATION, "high": UTILISATION, **rounded}


def _chosen(figures: Mapping[str, float | None], keys: Sequence[str]) -> dict[str, Any]:
    return {key: float(f"{figures[key]:.6g}") for key in keys}


def _headlines(result: ScenarioResult) -> dict[str, dict[str, Any]]:
    """The paper's figures as goals: ours against the lower end. Where less is better, both count as 1 less."""
    found = {}
    for row in result.paper:
        is_share_of_time = row.what.startswith("makespan")
        ours, goal = (row.ours, row.low) if not is_share_of_time else (None if row.ours is None else 1 - row.ours, 1 - row.low)
        found[row.what] = headline(ours, goal, "saved" if is_share_of_time else "", "" if ours is not None else "no such figure")
    return found
