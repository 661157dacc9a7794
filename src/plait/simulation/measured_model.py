"""Whether a profile's costs are those of the model that a scenario names."""

import re
from pathlib import Path

from plait.simulation.catalogue import read_table
from plait.simulation.profile import read_profile
from plait.simulation.scenario import TaskScenario


def measured_model(name: str) -> str | None:
    """Of the table of models the one that a profile of `name`, usually a folder's, is of: the longest that its words begin with."""
    words = _words(name)
    known = [model for model in read_table("models") if words[: len(_words(model))] == _words(model)]
    return max(known, key=len, default=None)


def profile_notes(scenario: TaskScenario) -> tuple[str, ...]:
    """What is to be told of costs that were measured on a model which the table lacks."""
    if not scenario.model.profile:
        return ()
    measured, named = read_profile(Path(scenario.model.profile)).model, scenario.model.name
    if measured_model(measured) is not None:
        return ()
    return (f'Costs were measured on "{measured}"; weights and caches are counted as those of model.name, {named}.',)


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9.]+", name.lower()) if word]
