"""Other assumptions than a scenario's, and the same scenario on a smaller cluster."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

from plait.simulation.job_scenario import JobScenario
from plait.simulation.load_scenario import Scenario
from plait.simulation.scenario import LengthSettings, TaskScenario

Change = Callable[[Scenario], Scenario]


def with_rollout(**changes: Any) -> Change:
    return lambda scenario: scenario.model_copy(update={"rollout": scenario.rollout.model_copy(update=changes)})  # type: ignore[union-attr]


def with_training_devices(devices: int) -> Change:
    return lambda scenario: scenario.model_copy(update={"training": scenario.training.model_copy(update={"devices": devices})})  # type: ignore[union-attr]


def with_model(name: str, devices_per_engine: int) -> Change:
    def change(scenario: Scenario) -> Scenario:
        assert isinstance(scenario, TaskScenario)
        rollout = scenario.rollout.model_copy(update={"devices_per_engine": devices_per_engine})
        return scenario.model_copy(update={"model": scenario.model.model_copy(update={"name": name}), "rollout": rollout})

    return change


def with_tasks(change_of: Callable[[Any], Mapping[str, Any]]) -> Change:
    """`change_of(task)`: what of it changes."""

    def change(scenario: Scenario) -> Scenario:
        assert isinstance(scenario, TaskScenario)
        return scenario.model_copy(update={"tasks": tuple(task.model_copy(update=change_of(task)) for task in scenario.tasks)})

    return change


def with_task_count(num_tasks: int) -> Change:
    """The first of so many tasks, the kinds in turn."""

    def change(scenario: Scenario) -> Scenario:
        assert isinstance(scenario, TaskScenario)
        kinds = len(scenario.tasks)
        counts = [num_tasks // kinds + (number < num_tasks % kinds) for number in range(kinds)]
        tasks = [task.model_copy(update={"count": count}) for task, count in zip(scenario.tasks, counts, strict=True) if count]
        return scenario.model_copy(update={"tasks": tuple(tasks)})

    return change


def with_lengths(**changes: Any) -> Change:
    """Keeps the mean of what is drawn."""

    def of(task: Any) -> Mapping[str, Any]:
        lengths = task.lengths.model_copy(update=changes)
        median = median_for(mean_tokens(task.lengths), lengths.sigma, lengths.max_tokens)
        return {"lengths": lengths.model_copy(update={"median_tokens": median})}

    return with_tasks(of)


def with_jobs(change_of: Callable[[Any], Mapping[str, Any]]) -> Change:
    def change(scenario: Scenario) -> Scenario:
        assert isinstance(scenario, JobScenario)
        return scenario.model_copy(update={"jobs": tuple(job.model_copy(update=change_of(job)) for job in scenario.jobs)})

    return change


def with_part(part: str, **factors: float) -> Change:
    """Of each job: a part's numbers times these."""

    def of(job: Any) -> Mapping[str, Any]:
        settings = getattr(job, part)
        return {part: settings.model_copy(update={key: getattr(settings, key) * factor for key, factor in factors.items()})}

    return with_jobs(of)


def with_even_split(scenario: Scenario) -> Scenario:
    """As many devices roll out as train."""
    return with_jobs(lambda job: {"rollout": job.rollout.model_copy(update={"devices": job.train.devices})})(scenario)


def with_systems(names: Sequence[str]) -> Change:
    """Only these, and no figures of the paper."""

    def change(scenario: Scenario) -> Scenario:
        systems = tuple(system for system in scenario.systems if system.name in names)
        return scenario.model_copy(update={"systems": systems, "paper": ()})

    return change


def smaller(factor: int) -> Change:
    """A cluster so many times smaller with the same load on each engine."""

    def change(scenario: Scenario) -> Scenario:
        cluster = scenario.cluster.model_copy(update={"devices": scenario.cluster.devices // factor})
        if isinstance(scenario, JobScenario):
            jobs = [job.model_copy(update={"count": max(1, job.count // factor)}) for job in scenario.jobs]
            return scenario.model_copy(update={"cluster": cluster, "jobs": tuple(jobs)})
        training = scenario.training.model_copy(update={"devices": max(1, scenario.training.devices // factor)})
        tasks = [task.model_copy(update={"groups_per_step": max(1, task.groups_per_step // factor)}) for task in scenario.tasks]
        return scenario.model_copy(update={"cluster": cluster, "training": training, "tasks": tuple(tasks)})

    return change


def mean_tokens(lengths: LengthSettings) -> float:
    """Of a lognormal cut at its most."""
    return _mean(lengths.median_tokens, lengths.sigma, lengths.max_tokens)


def median_for(mean: float, sigma: float, max_tokens: int) -> float:
    low, high = 1.0, 3.0 * max_tokens
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _mean(middle, sigma, max_tokens) < mean else (low, middle)
    return high


def _mean(median: float, sigma: float, most: int) -> float:
    normal, cut = NormalDist(), math.log(most / median) / sigma
    return median * math.exp(sigma**2 / 2) * normal.cdf(cut - sigma) + most * (1 - normal.cdf(cut))
