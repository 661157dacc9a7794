"""How many draft tokens each row verifies in the next step: as many as make a token cheapest, none if that does not pay.

Seer (arXiv 2511.14617): with gamma draft tokens a row gives E = 1 + sum over k of the product of the first k acceptances; drafting
costs D and verifying T(rows, tokens). Time per token (D + T) / E is least at gamma*. Here every row has its own draft and its own
acceptances, so the budget goes out by marginal benefit: the next token to the row whose expected gain is largest (a step's time
depends on the number of tokens, not on whose they are), gains of the tail weighing `tail_weight` times.

- Acceptances never rise along a draft, so for every number of tokens the greedy choice is the best one, and the best of all numbers
  is the optimum; with a tail weight the optimum of the weighted time per token.
- The plan's time per token is below that without drafts by at least the share `margin`; else there is no draft.
- Ties go to the lower row, so the plan depends on its arguments alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from plait.drafting.acceptance import GAMMA_MAX
from plait.drafting.target_time import TargetTime


@dataclass(frozen=True, slots=True)
class RowDraft:
    """One row's draft. `acceptances[k]`: chance that its first k + 1 tokens are all accepted; empty without a draft."""

    acceptances: tuple[float, ...] = ()
    is_tail: bool = False


@dataclass(frozen=True, slots=True)
class DraftLimits:
    gamma_max: int = GAMMA_MAX
    """Draft tokens of one row."""
    max_draft_tokens: int = 1 << 30
    """Draft tokens of a step."""
    max_extra_s: float = float("inf")
    """Seconds that verifying may add to a step."""
    margin: float = 0.03
    tail_weight: float = 1.5


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """`draft_tokens[i]` tokens of row i's draft are verified; `expected_tokens` come out of the step, which takes `seconds`."""

    draft_tokens: tuple[int, ...]
    expected_tokens: float
    seconds: float

    @property
    def num_draft_tokens(self) -> int:
        return sum(self.draft_tokens)


def best_plan(rows: Sequence[RowDraft], times: TargetTime, draft_s: float = 0.0, limits: DraftLimits | None = None) -> DraftPlan:
    """Plan the next step of all rows of a batch; `draft_s` is what drafting for them takes."""
    limits = limits or DraftLimits()
    num_rows = len(rows)
    order = draft_order(rows, limits)
    seconds = times.curve(num_rows, len(order)) if rows else [0.0]
    plain_s = seconds[0]
    weights = [limits.tail_weight if row.is_tail else 1.0 for row in rows]
    expected, weighted = float(num_rows), sum(weights)
    needed = plain_s / expected * (1 - limits.margin) if rows else 0.0
    best, best_cost, best_tokens, best_s = 0, plain_s / weighted if rows else 0.0, expected, plain_s
    for num, (row, position) in enumerate(order, 1):
        gain = rows[row].acceptances[position]
        expected, weighted = expected + gain, weighted + gain * weights[row]
        verify_s = seconds[num]
        if verify_s - plain_s > limits.max_extra_s:
            break
        cost = (draft_s + verify_s) / weighted
        if cost < best_cost and (draft_s + verify_s) / expected <= needed:
            best, best_cost, best_tokens, best_s = num, cost, expected, draft_s + verify_s
    return DraftPlan(shared_out(order[:best], num_rows), best_tokens, best_s)


def draft_order(rows: Sequence[RowDraft], limits: DraftLimits) -> list[tuple[int, int]]:
    """Return (row, position) of the draft tokens, the one of the largest weighted gain first."""
    ranked = [
        (-gain * (limits.tail_weight if row.is_tail else 1.0), i, position)
        for i, row in enumerate(rows)
        for position, gain in enumerate(row.acceptances[: limits.gamma_max])
        if gain > 0
    ]
    return [(row, position) for _, row, position in sorted(ranked)[: limits.max_draft_tokens]]


def shared_out(tokens: Sequence[tuple[int, int]], num_rows: int) -> tuple[int, ...]:
    """Count the tokens of each row."""
    counts = [0] * num_rows
    for row, _ in tokens:
        counts[row] += 1
    return tuple(counts)
