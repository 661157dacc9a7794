"""How many draft tokens are tried and accepted in simulated steps: the service's own cost model, fed with measured acceptance.

The chance that a draft token is accepted, given the ones before it, depends on how many siblings of the row have finished: the more
a group has written, the better its tree predicts.
"""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from plait.drafting.cost_model import DraftLimits, DraftPlan, RowDraft, best_plan
from plait.drafting.target_time import TargetTime, interpolate
from plait.simulation.costs import CostModel

PROFILED_ROWS = (1, 4, 16, 64, 256)
PROFILED_WIDTHS = (1, 2, 4, 9)


class AcceptanceTable(msgspec.Struct, frozen=True):
    """Tokens that come out of a step of a row, the one drawn anyway included, by finished siblings; linear between its points."""

    num_siblings: tuple[float, ...]
    tokens_per_step: tuple[float, ...]
    draft_tokens: int
    """That were tried when it was measured."""

    def chance(self, num_siblings: int) -> float:
        """Of each draft token, if the ones before it were accepted; taken to be the same at every position."""
        xs, ys = self.num_siblings, self.tokens_per_step
        return _chance(ys[-1] if num_siblings >= xs[-1] else interpolate(xs, ys, num_siblings), self.draft_tokens)


SEER_ACCEPTANCE = AcceptanceTable((0, 15), (1.70, 2.85), 8)
"""Seer (arXiv 2511.14617): drafts from the row alone, and with 15 siblings and four paths. What is between is not printed there."""


@lru_cache(maxsize=4096)
def _chance(tokens_per_step: float, draft_tokens: int) -> float:
    """The acceptance with which so many draft tokens bring so many tokens: E = 1 + sum of its powers."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        is_short = 1 + sum(middle**k for k in range(1, draft_tokens + 1)) < tokens_per_step
        low, high = (middle, high) if is_short else (low, middle)
    return high


class DraftModel:
    """Plans steps of a batch. `draft_s_per_row`: what drafting for a row takes."""

    def __init__(
        self, costs: CostModel, table: AcceptanceTable = SEER_ACCEPTANCE, draft_s_per_row: float = 2e-5,
        limits: DraftLimits = DraftLimits(),
    ) -> None:  # fmt: skip
        self._costs, self._table, self._limits = costs, table, limits
        self._draft_s_per_row = draft_s_per_row
        self._times: dict[int, TargetTime] = {}
        self._plans: dict[tuple[int, tuple[int, ...]], DraftPlan] = {}

    def plan(self, num_siblings: Sequence[int], context_tokens: int) -> list[tuple[int, float]]:
        """For each row, by its finished siblings: (draft tokens, expected tokens of a step)."""
        times_key = (context_tokens // max(1, len(num_siblings))).bit_length()
        order = sorted(range(len(num_siblings)), key=lambda i: num_siblings[i])
        key = (times_key, tuple(num_siblings[i] for i in order))
        if key not in self._plans:
            if len(self._plans) >= 4096:
                self._plans.clear()
            self._plans[key] = self._made(key)
        found = [(0, 1.0)] * len(order)
        for place, num in zip(order, self._plans[key].draft_tokens, strict=True):
            chance = self._table.chance(num_siblings[place])
            found[place] = (num, 1 + sum(chance**k for k in range(1, num + 1)))
        return found

    def step_s(self, num_rows: int, context_tokens: int, num_draft_tokens: int) -> float:
        drafting_s = self._draft_s_per_row * num_rows if num_draft_tokens else 0.0
        return self._costs.verify_step_s(num_rows, context_tokens, 1 + num_draft_tokens / num_rows) + drafting_s

    def _made(self, key: tuple[int, tuple[int, ...]]) -> DraftPlan:
        times_key, siblings = key
        rows = [RowDraft(self._acceptances(num)) for num in siblings]
        return best_plan(rows, self._times_of(times_key), self._draft_s_per_row * len(rows), self._limits)

    def _acceptances(self, num_siblings: int) -> tuple[float, ...]:
        chance = self._table.chance(num_siblings)
        return tuple(chance**k for k in range(1, self._limits.gamma_max + 1))

    def _times_of(self, times_key: int) -> TargetTime:
        """The profile that an engine makes at its start, at contexts of about the size of now."""
        if times_key not in self._times:
            context_tokens = 3 * (1 << times_key) // 4
            self._times[times_key] = TargetTime({
                (rows, width): self._costs.verify_step_s(rows, rows * context_tokens, width)
                for rows in PROFILED_ROWS for width in PROFILED_WIDTHS
            })  # fmt: skip
        return self._times[times_key]
