"""Highest response ratio with setup time: the order of PlexRL (arXiv 2605.20863), looking ahead. Pure.

`score = 1 + (wait + ahead) / (service + setup)`, setup 0 if the deployment is resident; highest first, FIFO on ties. `ahead` is
`lookahead` times the mean `service + setup` of the heads; with `lookahead` 0 the score is PlexRL's. As each call is scored as it
will be after a few more of others, a short one need not have waited to go before a long one, and the next call of a resident model
is not left behind because it has just arrived. Far ahead, the order is shortest first.

A call r *is overtaken* by q if q arrived after r and starts before it. Let C be the largest `service + setup` that is expected of r
at any decision while it waits (and of the calls of its stream that are still before it, if that is more), H the largest `ahead` at
those, and c what is expected of q as q is picked.

- **Only by what is shorter, and has waited as much for its length.** If q is picked as r has waited t since r arrived, and q
  arrived as r had waited v, then `c < C * (t - v + H) / (t + H)`. What is as long as r never overtakes it. What has just arrived
  does so only until r has waited `H * (C / c - 1)`: with H = 0, never.
- **From who asks again only when it was answered, little.** Let each call of a stream arrive after the one before it ended, and
  each take e or more. Then all calls of that stream that overtake r within a wait of w are expected to take less than
  `C * (2 + (1 + H / e) * log((w + H) / (e1 + H)))` together, where e1 is what r had waited as the first of them ended. (Each has
  c < C; those after the first have c < C * (t - v) / (t + H) + C * H / (t + H). No v is less than e1 or than the t before it, so
  the first terms sum to less than the logarithm; the t are e apart, so the second ones sum to less than C + C * H / e times it.)
  So with n such streams, and w0 seconds of work before r, r waits at most the largest w for which
  `w <= w0 + n * C * (2 + (1 + H / e) * log((w + H) / (e + H)))` if times are as expected: it starts, however long they go on.
- **From all together, at most `max_score * C`.** Scores grow to `max_score`, and equal ones are FIFO: once r has waited
  `(max_score - 1) * C`, nothing overtakes it, whatever arrives. What did ran before that, but for the end of one call shorter
  than r.
"""

import math
from collections.abc import Callable, Sequence

from plait.scheduling.function_call import FunctionCall
from plait.types.errors import ConfigError

LOOKAHEAD = 8.0
"""In mean calls. `benchmarks.hrrs`: from 4 to 16 hardly anything changes."""
MAX_SCORE = 100.0
"""Seldom decides about what fits a group; under overload the order turns into FIFO instead of leaving long calls behind."""


class Hrrs:
    """`max_score`: what a call's score grows to at most, above 1."""

    def __init__(self, lookahead: float = LOOKAHEAD, max_score: float = MAX_SCORE) -> None:
        if not 0 <= lookahead < math.inf:
            raise ConfigError(f"lookahead is {lookahead}.", "Give a finite number of 0 or more.")
        if not 1 < max_score < math.inf:
            raise ConfigError(f"max_score is {max_score}.", "Give a finite number above 1.")
        self.lookahead = lookahead
        self.max_score = max_score
        self._max_ratio = max_score - 1

    def pick(
        self,
        heads: Sequence[FunctionCall],
        now_s: float,
        service_s: Callable[[FunctionCall], float],
        setup_s: Callable[[str], float],
    ) -> FunctionCall:
        if len(heads) == 1:
            return heads[0]
        costs_s = expected_s(heads, service_s, setup_s)
        until_s, most = now_s + self.lookahead * sum(costs_s) / len(costs_s), self._max_ratio
        best, best_ratio = heads[0], -1.0
        for call, cost_s in zip(heads, costs_s, strict=True):
            wait_s = until_s - call.arrival_s
            ratio = 0.0 if wait_s <= 0 else wait_s / cost_s if wait_s < most * cost_s else most
            if ratio > best_ratio:
                best, best_ratio = call, ratio
        return best

    def served(self, call: FunctionCall) -> None:
        pass


def expected_s(
    heads: Sequence[FunctionCall], service_s: Callable[[FunctionCall], float], setup_s: Callable[[str], float]
) -> list[float]:
    """Setup and service of each; a deployment's setup is asked for once."""
    setups_s: dict[str, float] = {}
    costs_s: list[float] = []
    for call in heads:
        name = call.deployment
        if name not in setups_s:
            setups_s[name] = setup_s(name)
        costs_s.append(service_s(call) + setups_s[name])
    return costs_s
