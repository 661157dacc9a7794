"""How much better each answer of a group was than was to be expected.

- `group_centred`, `group_standardised` and `leave_one_out` compare the answers of one group with each other: a group of one,
  or one whose rewards are all alike, has nothing to teach and gets exact zeros.
- `raw` is the reward itself, whatever the others got.
- A reward that is not finite is no measurement: its answer gets zero and the others are judged as if it were not there.
"""

import math
from collections.abc import Callable, Sequence

from plait.training.names import choose

MIN_SPREAD = 1e-8
"""Rewards closer together than this are alike: dividing by such a spread would turn rounding noise into a signal."""


def raw(rewards_G: Sequence[float]) -> list[float]:
    """The rewards."""
    return list(rewards_G)


def group_centred(rewards_G: Sequence[float]) -> list[float]:
    """Reward minus the group's mean (Dr. GRPO, arXiv:2503.20783)."""
    mean = math.fsum(rewards_G) / len(rewards_G)
    return [reward - mean for reward in rewards_G]


def group_standardised(rewards_G: Sequence[float]) -> list[float]:
    """Centred and divided by the group's (population) standard deviation (GRPO, arXiv:2402.03300)."""
    centred_G = group_centred(rewards_G)
    deviation = math.sqrt(math.fsum(value * value for value in centred_G) / len(centred_G))
    return [value / deviation for value in centred_G]


def leave_one_out(rewards_G: Sequence[float]) -> list[float]:
    """Reward minus the mean of the others (RLOO, arXiv:2402.14740)."""
    scale = len(rewards_G) / (len(rewards_G) - 1)
    return [value * scale for value in group_centred(rewards_G)]


_COMPARING: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "group_centred": group_centred,
    "group_standardised": group_standardised,
    "leave_one_out": leave_one_out,
}
_ALL = _COMPARING | {"raw": raw}


def group_advantages(kind: str, rewards_G: Sequence[float]) -> list[float]:
    """Advantages of one group's answers, in their order.

    Raises ConfigError if `kind` is unknown.
    """
    function = choose("advantage", kind, _ALL)
    known = [index for index, reward in enumerate(rewards_G) if math.isfinite(reward)]
    rewards_K = [rewards_G[index] for index in known]
    advantages_G = [0.0] * len(rewards_G)
    if kind in _COMPARING and not _has_spread(rewards_K):
        return advantages_G
    for index, advantage in zip(known, function(rewards_K), strict=True):
        advantages_G[index] = advantage
    return advantages_G


def _has_spread(rewards_K: Sequence[float]) -> bool:
    return len(rewards_K) > 1 and max(rewards_K) - min(rewards_K) > MIN_SPREAD
