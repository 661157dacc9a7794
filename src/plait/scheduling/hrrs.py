"""Highest response ratio with setup time: the order of PlexRL (arXiv 2605.20863). Pure.

`score = 1 + wait / (service + setup)`, setup 0 if the deployment is resident; highest first, FIFO on ties.

A call r *is overtaken* by q if q arrived after r and starts before it. Let C be the largest `service + setup` that is expected of r
at any decision while it waits (and of the calls of its stream that are still before it, if that is more), and c that of q as q is
picked.

- **Only by what is shorter, and has waited as much for its length.** If q is picked as r has waited t since r arrived, and q
  arrived as r had waited v, then `c < C * (t - v) / t`. So what is as long as r never overtakes it, and what arrives once r has
  waited v does so no earlier than at t = v / (1 - c / C).
- **From who asks again only when it was answered, little.** Let each call of a stream arrive after the one before it ended. Then
  all calls of that stream that overtake r are expected to take less than `c1 + C * log(w / e1)` together, if r waits w: c1 < C is
  the first of them, and e1 what r had waited as that ended. (Each later one has c < C * (1 - v / t) <= C * log(t / v), and its v
  is no less than the t of the one before it, or e1.) So with n such streams, and w0 seconds of work before r, r waits at most the
  w that solves `w = w0 + n * C * (1 + log(w / e))`, where e is the shortest call and times are as expected, however long the
  others go on.
- **From all together, at most `max_score * C`.** Scores grow to `max_score`, and equal ones are FIFO: once r has waited
  `(max_score - 1) * C`, nothing overtakes it, whatever arrives. What did ran before that, but for the end of one call shorter
  than r.
"""

import math
from collections.abc import Callable, Sequence

from plait.scheduling.function_call import FunctionCall
from plait.types.errors import ConfigError

MAX_SCORE = 100.0
"""Seldom reached by what fits a group; under overload the order turns into FIFO instead of leaving long calls behind."""


class Hrrs:
    """`max_score`: what a call's score grows to at most, above 1."""

    def __init__(self, max_score: float = MAX_SCORE) -> None:
        if not 1 < max_score < math.inf:
            raise ConfigError(f"max_score is {max_score}.", "Give a finite number above 1.")
        self.max_score = max_score
        self._max_ratio = max_score - 1

    def pick(
        self,
        heads: Sequence[FunctionCall],
        now_s: float,
        service_s: Callable[[FunctionCall], float],
        setup_s: Callable[[str], float],
    ) -> FunctionCall:
        best, best_ratio = heads[0], -1.0
        setups: dict[str, float] = {}
        for call in heads:
            name = call.deployment
            if name not in setups:
                setups[name] = setup_s(name)
            wait_s, cost_s = now_s - call.arrival_s, service_s(call) + setups[name]
            if wait_s <= 0:
                ratio = 0.0
            elif wait_s < self._max_ratio * cost_s:
                ratio = wait_s / cost_s
            else:
                ratio = self._max_ratio
            if ratio > best_ratio:
                best, best_ratio = call, ratio
        return best

    def served(self, call: FunctionCall) -> None:
        pass
