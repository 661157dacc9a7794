"""Which draft tokens each row verifies in the next step: those that make a token cheapest, none if that does not pay.

Seer (arXiv 2511.14617): with gamma draft tokens a row gives E = 1 + sum over k of the product of the first k acceptances; drafting
costs D and verifying T(rows, tokens). Time per token (D + T) / E is least at gamma*. Here every row has its own draft and its own
acceptances, so the budget goes out by marginal benefit: the next token to the row whose expected gain is largest (a step's time
depends on the number of tokens, not on whose they are), gains of the tail weighing `tail_weight` times.

- A draft may be a tree: at most one of the tokens for a place is accepted, so the gain of a node is the chance that all up to it
  come true, and E = 1 + the sum over the nodes. A step with several paths in a row takes longer than its tokens say, by a factor;
  so all rows' first paths alone are planned too, and the cheaper plan holds.
- Acceptances never rise along a draft, so for every number of tokens the greedy choice is the best one, and the best of all numbers
  is the optimum; with a tail weight the optimum of the weighted time per token.
- The plan's time per token is below that without drafts by at least the share `margin`; else there is no draft.
- A token need not save a row's share of a step: where no row follows, one that is ahead of the others saves less. So gains count
  `worth` times, and E is the number of tokens of full worth.
- Ties go to the lower row, so the plan depends on its arguments alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from plait.drafting.acceptance import GAMMA_MAX
from plait.drafting.target_time import TargetTime


@dataclass(frozen=True, slots=True)
class RowDraft:
    """One row's draft. `acceptances[n]`: chance that node n of its tree, and all before it on its path, are accepted; of a single
    path that the first n + 1 tokens are. Empty without a draft."""

    acceptances: tuple[float, ...] = ()
    is_tail: bool = False
    num_first: int | None = None
    """Nodes of the first path, which lead; None: all."""
    worth: float = 1.0
    """What an accepted token saves, of what a row's share of a step without drafts takes; see `saved_time`."""

    @property
    def has_paths(self) -> bool:
        return self.num_first is not None and self.num_first < len(self.acceptances)


@dataclass(frozen=True, slots=True)
class DraftLimits:
    gamma_max: int = GAMMA_MAX
    """Draft tokens of one row's first path."""
    max_draft_tokens: int = 1 << 30
    """Draft tokens of a step."""
    max_extra_s: float = float("inf")
    """Seconds that verifying may add to a step."""
    margin: float = 0.03
    tail_weight: float = 1.5
    max_nodes: int = 2 * GAMMA_MAX
    """Draft tokens of all paths of one row."""


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """`nodes[i]` of row i's draft are verified; `expected_tokens`, by their worth, come out of the step, which takes `seconds`."""

    nodes: tuple[tuple[int, ...], ...]
    expected_tokens: float
    seconds: float
    has_paths: bool = False
    """A row verifies several paths."""

    @property
    def draft_tokens(self) -> tuple[int, ...]:
        """Of each row."""
        return tuple(map(len, self.nodes))

    @property
    def num_draft_tokens(self) -> int:
        return sum(self.draft_tokens)


@dataclass(slots=True)
class _Best:
    """The best number of tokens of an order so far."""

    cost: float
    expected: float
    seconds: float
    num: int = 0
    has_paths: bool = False


def best_plan(rows: Sequence[RowDraft], times: TargetTime, draft_s: float = 0.0, limits: DraftLimits | None = None) -> DraftPlan:
    """Plan the next step of all rows of a batch; `draft_s` is what drafting for them takes."""
    limits = limits or DraftLimits()
    if not rows:
        return DraftPlan((), 0.0, 0.0)
    orders = [draft_order(rows, limits, False)]
    if any(row.has_paths for row in rows):
        orders.append(draft_order(rows, limits, True))
    found = [(_best(rows, order, times, draft_s, limits), order) for order in orders]
    best, order = min(found, key=lambda pair: pair[0].cost)
    return DraftPlan(shared_out(order[: best.num], len(rows)), best.expected, best.seconds, best.has_paths)


def _best(
    rows: Sequence[RowDraft], order: Sequence[tuple[int, int]], times: TargetTime, draft_s: float, limits: DraftLimits
) -> _Best:
    num_rows = len(rows)
    seconds, with_paths = times.curve(num_rows, len(order)), times.paths_factor(num_rows)
    plain_s = seconds[0]
    weights = [limits.tail_weight if row.is_tail else 1.0 for row in rows]
    expected, weighted, has_paths = float(num_rows), sum(weights), False
    needed = plain_s / expected * (1 - limits.margin)
    best = _Best(plain_s / weighted, expected, plain_s)
    for num, (row, node) in enumerate(order, 1):
        gain = rows[row].acceptances[node] * rows[row].worth
        expected, weighted = expected + gain, weighted + gain * weights[row]
        has_paths = has_paths or (rows[row].has_paths and node >= (rows[row].num_first or 0))
        verify_s = seconds[num] * (with_paths if has_paths else 1.0)
        if verify_s - plain_s > limits.max_extra_s:
            break
        cost = (draft_s + verify_s) / weighted
        if cost < best.cost and (draft_s + verify_s) / expected <= needed:
            best = _Best(cost, expected, draft_s + verify_s, num, has_paths)
    return best


def draft_order(rows: Sequence[RowDraft], limits: DraftLimits, with_paths: bool = False) -> list[tuple[int, int]]:
    """Return (row, node) of the draft tokens, the one of the largest weighted gain first; of first paths, or of all."""
    ranked = [
        (-gain * row.worth * (limits.tail_weight if row.is_tail else 1.0), i, node)
        for i, row in enumerate(rows)
        for node, gain in enumerate(row.acceptances if with_paths else row.acceptances[: row.num_first][: limits.gamma_max])
        if gain * row.worth > 0
    ]
    chosen, counts = [], [0] * len(rows)
    for _, row, node in sorted(ranked):
        counts[row] += 1
        if counts[row] <= limits.max_nodes:
            chosen.append((row, node))
    return chosen[: limits.max_draft_tokens]


def shared_out(tokens: Sequence[tuple[int, int]], num_rows: int) -> tuple[tuple[int, ...], ...]:
    """The nodes of each row, in rising order."""
    nodes: list[list[int]] = [[] for _ in range(num_rows)]
    for row, node in tokens:
        nodes[row].append(node)
    return tuple(tuple(sorted(own)) for own in nodes)
