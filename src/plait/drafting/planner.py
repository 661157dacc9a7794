"""An engine's drafting, decided step by step: ask whether to draft, draft, plan, verify, tell what happened.

    if planner.wants_drafts(num_rows, is_tail, num_unlearnt): trees = ... of at most planner.num_paths paths a row
    plan = planner.plan(trees, is_tail, requests, refilled)      # which tokens of each tree to verify
    planner.observe(num_rows, seconds, Step(plan, trees, is_tail, requests, drawn, refilled), draft_s)

- Drafting pays or is off: after `PATIENCE` steps in a row whose plan was empty the engine drafts only so often that drafting alone
  takes half of what may be lost. A plan that pays turns it on again.
- While it is off, a *probe* now and then verifies up to `PROBE_TOKENS` tokens though the model expects no gain, for the model may
  have learnt from tokens unlike those of now: after `MIN_INTERVAL` steps, then ever more rarely, up to `MAX_INTERVAL`.
- Several paths a row are drafted in the tail alone. After `PATIENCE` plans in a row that verified one only, they are drafted once
  in `PATHS_INTERVAL` steps of the tail.
- A ledger bounds the loss, probes, drafting and learning itself included: see `loss_ledger`.
- Deterministic: decisions depend on what was told, and clocks are read by the caller.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from plait.drafting.acceptance import Acceptance
from plait.drafting.cost_model import DraftLimits, DraftPlan, RowDraft, best_plan, draft_order, shared_out
from plait.drafting.draft_tree import MAX_PATHS, DraftTree
from plait.drafting.drafting_time import DraftingTime
from plait.drafting.loss_ledger import LossLedger
from plait.drafting.saved_time import SavedTime
from plait.drafting.target_time import MAX_JUMP, TargetTime

PATIENCE = 8
"""Steps without a draft worth verifying before drafting turns itself off."""
MIN_INTERVAL = 8
MAX_INTERVAL = 128
"""Steps between probes, which double from the least to the most while probes show nothing."""
PROBE_TOKENS = 8
PATHS_INTERVAL = 16
REFERENCE_INTERVAL = 32
"""Of so many steps in a row with drafts the next has none, and tells what such a step takes now."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was drafted for: the trees, and what each row drew, in the order of the rows; the plan may be empty."""

    plan: DraftPlan
    trees: Sequence[DraftTree]
    is_tail: Sequence[bool]
    requests: Sequence[str]
    drawn: Sequence[Sequence[int]]
    """No token of a row whose draft gave something that is not a number."""
    refilled: float = 0.0
    """The share of the rows whose places others wait for."""

    @property
    def accepted(self) -> list[int]:
        return [max(0, len(tokens) - 1) for tokens in self.drawn]


class DraftPlanner:
    def __init__(
        self,
        profile: Mapping[tuple[int, int], float],
        limits: DraftLimits | None = None,
        max_loss_share: float = 0.01,
        max_paths: int = MAX_PATHS,
        token_step: int = 1,
    ) -> None:
        """`profile`: (rows, tokens per row) -> seconds of a step, for every pair of a grid that has one token per row, and
        `token_step`: see `target_time`. `max_paths`: of a row in the tail."""
        self.times, self.acceptance = TargetTime(profile, token_step), Acceptance()
        self.ledger = LossLedger(max_loss_share)
        self.saved, self.drafting = SavedTime(self.times), DraftingTime()
        self.limits, self.max_paths = limits or DraftLimits(), max_paths
        self.num_paths = 1
        """Paths of a row to be drafted for the next step, at most."""
        self._num_empty = 0
        self._interval = MIN_INTERVAL
        self._num_to_check = self._num_to_probe = 0
        """Steps until the engine drafts again, and until it may probe."""
        self._num_single = 0
        """Plans in a row that had trees of several paths to choose from and took one."""
        self._num_to_branch = 0
        self._num_drafted = 0
        """Steps in a row with drafts."""

    @property
    def is_on(self) -> bool:
        return self._num_empty < PATIENCE

    def wants_drafts(self, num_rows: int, is_tail: bool = False, num_unlearnt: int = 0) -> bool:
        """Whether drafting for the next step is worth its own time, and that of learning so many tokens; ask once a step."""
        self._num_to_probe -= 1
        self._num_to_check -= 1
        if not num_rows or self._num_drafted >= REFERENCE_INTERVAL or (not self.is_on and self._num_to_check > 0):
            return False
        self.num_paths = self._paths_to_draft() if is_tail else 1
        self.drafting.expect(num_rows, self.num_paths, num_unlearnt)
        return self.ledger.balance_s >= self.drafting.seconds

    def plan(
        self, trees: Sequence[DraftTree], is_tail: Sequence[bool] = (), requests: Sequence[str] = (), refilled: float = 0.0
    ) -> DraftPlan:
        """Say which tokens of each row's tree to verify; one tree a row, an empty one where there is none.

        `requests` are the rows' names, without which all are worth the same; others wait for the places of the share `refilled`.
        """
        tails = is_tail or [False] * len(trees)
        worths = self.saved.worths(requests, refilled) or [1.0] * len(trees)
        rows = [
            RowDraft(self.acceptance.calibrate(tree, tail), tail, tree.num_first, worth)
            for tree, tail, worth in zip(trees, tails, worths, strict=True)
        ]
        draft_s = self.drafting.seconds
        limits = replace(self.limits, max_extra_s=min(self.limits.max_extra_s, max(self.ledger.balance_s - draft_s, 0.0)))
        found = best_plan(rows, self.times, draft_s, limits)
        if any(row.has_paths for row in rows):
            self._num_single = 0 if found.has_paths else self._num_single + 1
        if found.num_draft_tokens:
            self._num_empty, self._interval = 0, MIN_INTERVAL
            return found
        self._num_empty += 1
        if self.is_on:
            self._num_to_probe = self._interval
            return found
        self._num_to_check = self._steps_between_checks(found.seconds, draft_s)
        return (self._probe(trees, tails, limits) if self._num_to_probe <= 0 else None) or found

    def observe(self, num_rows: int, seconds: float, step: Step | None = None, draft_s: float = 0.0) -> None:
        """Take a step: the time of the model and, if drafts were asked for, what came of them and what asking took."""
        num_drafted = step.plan.num_draft_tokens if step else 0
        self._num_drafted = self._num_drafted + 1 if num_drafted else 0
        has_paths = step is not None and step.plan.has_paths
        self.times.observe(num_rows, num_rows + num_drafted, seconds, has_paths)
        if step is not None:
            self.drafting.observe(draft_s)
            for tree, drawn, tail in zip(step.trees, step.drawn, step.is_tail, strict=True):
                if tree.tokens:
                    self.acceptance.observe(tree, drawn, tail)
        plain_s = self.times.seconds(num_rows, num_rows)
        # What was measured, not what was expected: a model that errs would spend what is not there. And never a gain: a step with
        # drafts that is faster than those without shows that the model errs.
        verify_s = min(seconds, MAX_JUMP * self.times.seconds(num_rows, num_rows + num_drafted))
        extra_s = (max(verify_s - plain_s, 0.0) if num_drafted else 0.0) + draft_s
        saved_s = self.saved.take(step.requests, step.accepted, step.refilled) if step else self.saved.take((), ())
        self.ledger.book(plain_s, extra_s, saved_s)

    def _paths_to_draft(self) -> int:
        if self._num_single < PATIENCE:
            return self.max_paths
        self._num_to_branch -= 1
        if self._num_to_branch > 0:
            return 1
        self._num_to_branch = PATHS_INTERVAL
        return self.max_paths

    def _probe(self, trees: Sequence[DraftTree], tails: Sequence[bool], limits: DraftLimits) -> DraftPlan | None:
        """Verify what the drafts themselves think best of their first paths, as far as the ledger pays for it."""
        rows = [RowDraft(tree.probabilities, tail, tree.num_first) for tree, tail in zip(trees, tails, strict=True)]
        order = draft_order(rows, replace(limits, max_draft_tokens=PROBE_TOKENS))
        num_rows = len(rows)
        plain_s = self.times.seconds(num_rows, num_rows)
        while order and self.times.seconds(num_rows, num_rows + len(order)) - plain_s > limits.max_extra_s:
            order.pop()
        if not order:
            return None
        self._num_to_probe = self._interval = min(2 * self._interval, MAX_INTERVAL)
        seconds = self.times.seconds(num_rows, num_rows + len(order)) + self.drafting.seconds
        return DraftPlan(shared_out(order, num_rows), float(num_rows), seconds)

    def _steps_between_checks(self, plain_s: float, draft_s: float) -> int:
        return min(ceil(2 * draft_s / max(self.ledger.max_loss_share * plain_s, 1e-9)), MAX_INTERVAL)
