"""The tasks of the comparison: mixed environments, delays, ranks, target modules and group shapes, in a fixed order.

The first n of them are what n tasks at once are; task i is of kind i mod 8, with questions, adapter and noise of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plait.config.environments import (
    AnyEnvironmentSettings,
    CalculatorSettings,
    DelaySettings,
    FunctionSettings,
    ReasoningGymSettings,
)
from plait.config.task import (
    ALL_LINEAR_MODULES,
    ATTENTION_MODULES,
    MLP_MODULES,
    EvaluationSettings,
    LoraSettings,
    SamplingSettings,
    TargetModule,
    TaskSettings,
)

REWARDS = Path(__file__).with_name("marlaas_rewards.py")
TURN_TIMEOUT_S = 60.0
"""On a busy machine a call may wait; a time-out would drop a group, and then the tasks' steps would differ."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`environment` is a reward of `marlaas_rewards`, "gym:NAME", or "calculator" (two turns)."""

    name: str
    environment: str
    rank: int
    modules: Sequence[TargetModule]
    groups: int
    group_size: int
    delay: str = "long_tailed"
    sigma: float = 1.0


TINY_KINDS = (
    Kind("digits", "digit_share", 8, ATTENTION_MODULES, 2, 8),
    Kind("gcd", "gym:gcd", 16, ALL_LINEAR_MODULES, 4, 4),
    Kind("vowels", "vowel_share", 4, ("q_proj", "v_proj"), 1, 16, "fixed"),
    Kind("spaces", "space_share", 16, MLP_MODULES, 2, 8),
    Kind("bits", "gym:count_bits", 8, ALL_LINEAR_MODULES, 4, 4),
    Kind("capitals", "upper_share", 32, ATTENTION_MODULES, 1, 16),
    Kind("letters", "gym:letter_counting", 4, MLP_MODULES, 2, 8, "fixed"),
    Kind("variety", "variety", 8, ("q_proj", "v_proj", "lm_head"), 4, 4),
)
"""16 samples a step each, so that a lone task fills a quarter of the engine's rows."""

SMOLLM2_KINDS = (
    Kind("gcd", "gym:gcd", 16, ALL_LINEAR_MODULES, 2, 4),
    Kind("calculator", "calculator", 8, ATTENTION_MODULES, 2, 4, sigma=0.5),
    Kind("digits", "digit_share", 32, MLP_MODULES, 1, 8),
    Kind("sums", "gym:chain_sum", 16, ("q_proj", "v_proj"), 2, 4, "fixed"),
)

WARM_UP = Kind("warm-up", "variety", 16, (*ALL_LINEAR_MODULES, "lm_head"), 2, 8)


def make_tasks(
    kinds: Sequence[Kind], num_tasks: int, steps: int, max_new_tokens: int, delays_s: Mapping[str, float]
) -> tuple[TaskSettings, ...]:
    """`delays_s` is the mean delay by kind; a kind that is not named has none."""
    return tuple(
        _task(kinds[i % len(kinds)], i, steps, max_new_tokens, delays_s.get(kinds[i % len(kinds)].name, 0.0))
        for i in range(num_tasks)
    )


def warm_up_task(max_new_tokens: int) -> TaskSettings:
    """Makes torch and the engine do everything once: the first backward pass of a process alone takes a second."""
    return _task(WARM_UP, 0, 2, max_new_tokens, 0.0)


def _task(kind: Kind, index: int, steps: int, max_new_tokens: int, mean_s: float) -> TaskSettings:
    return TaskSettings(
        name=f"{kind.name}-{index}",
        environment=_environment(kind, index, mean_s),
        steps=steps,
        groups_per_step=kind.groups,
        group_size=kind.group_size,
        lora=LoraSettings(rank=kind.rank, alpha=2.0 * kind.rank, target_modules=tuple(kind.modules), seed=index),
        sampling=SamplingSettings(max_new_tokens=max_new_tokens),
        evaluation=EvaluationSettings(questions=0),
        seed=index,
    )


def _environment(kind: Kind, seed: int, mean_s: float) -> AnyEnvironmentSettings:
    delay = DelaySettings(kind=kind.delay, mean_s=mean_s, sigma=kind.sigma) if mean_s else DelaySettings()
    common = {
        "seed": seed,
        "delay": delay,
        "require_stop": False,
        "turn_timeout_s": TURN_TIMEOUT_S,
        "score_timeout_s": TURN_TIMEOUT_S,
    }
    if kind.environment == "calculator":
        return CalculatorSettings(**common)
    if kind.environment.startswith("gym:"):
        return ReasoningGymSettings(name=kind.environment.removeprefix("gym:"), answer_format="last_number", **common)
    return FunctionSettings(function=f"{REWARDS}:{kind.environment}", examples=f"{REWARDS}:examples", **common)
