"""How worker groups and the base models on them stand, for Prometheus; and what becomes of placements, for the log."""

import logging
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from plait.cluster.groups.group_state import GroupState, JobState, group_states, job_states
from plait.cluster.groups.worker_groups import WorkerGroups
from plait.observe.events import GroupSample, JobMoved, Note

TEXTS = {
    "group_busy_seconds": "Time that a worker group has run function calls, or brought deployments onto its device.",
    "group_busy_share": "The same, as a share of the time since the server started.",
    "group_calls": "Function calls that a worker group has begun.",
    "group_switches": "Deployments that a worker group has brought onto its device.",
    "group_moves": "Base models that came to a worker group from another.",
    "group_deployments": "Deployments at a worker group.",
}
TEXTS_OF_MODELS = {
    "model_group": "1 for the worker group where a base model is.",
    "model_slowdown": "Time over the time without waiting for other base models, while a base model's latest profile was taken.",
    "model_expected_slowdown": "The same, as the placement expects it; 1 for a base model that it has not placed.",
    "model_period_seconds": "Period of a base model's demand, where its trace tells one.",
}


log = logging.getLogger("plait.server")


def log_placement(event: GroupSample | JobMoved | Note) -> None:
    match event:
        case JobMoved():
            log.info("base model %s moved from %s to %s", event.job, event.source, event.target)
        case Note():
            log.warning("%s", event.message)


class GroupGauges(Collector):
    def __init__(self, groups: WorkerGroups) -> None:
        self._groups = groups

    def describe(self) -> list[GaugeMetricFamily]:
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        families = {name: GaugeMetricFamily(f"plait_{name}", text, labels=["group"]) for name, text in TEXTS.items()}
        for state in group_states(self._groups):
            for name, value in _values(state).items():
                families[name].add_metric([state.name], value)
        yield from families.values()
        yield from self._of_models()

    def _of_models(self) -> Iterator[GaugeMetricFamily]:
        labels = ["base_model", "group"]
        families = {name: GaugeMetricFamily(f"plait_{name}", text, labels=labels) for name, text in TEXTS_OF_MODELS.items()}
        for state in job_states(self._groups):
            for name, value in _values_of_model(state).items():
                families[name].add_metric([state.name, state.group], value)
        yield from families.values()


def _values(state: GroupState) -> dict[str, float]:
    return {
        "group_busy_seconds": state.busy_s,
        "group_busy_share": state.busy_s / state.up_s if state.up_s else 0.0,
        "group_calls": state.num_calls,
        "group_switches": state.num_switches,
        "group_moves": state.num_moves,
        "group_deployments": len(state.deployments),
    }


def _values_of_model(state: JobState) -> dict[str, float]:
    known = {"model_group": 1.0, "model_slowdown": state.slowdown, "model_expected_slowdown": state.expected_slowdown}
    return known if state.period_s is None else known | {"model_period_seconds": state.period_s}
