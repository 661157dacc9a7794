"""An engine's drafting, decided step by step: ask whether to draft, draft, plan, verify, tell what happened.

    if planner.wants_drafts(num_rows): drafts = drafter.batch_speculate(...)
    plan = planner.plan(drafts, is_tail)         # how many tokens of each draft to verify
    planner.observe(num_rows, seconds, plan, drafts, accepted, is_tail, draft_s)

- Drafting pays or is off: after `PATIENCE` steps in a row whose plan was empty the engine drafts only so often that drafting alone
  takes half of what may be lost. A plan that pays turns it on again.
- While it is off, a *probe* now and then verifies up to `PROBE_TOKENS` tokens though the model expects no gain, for the model may
  have learnt from tokens unlike those of now: after `MIN_INTERVAL` steps, then ever more rarely, up to `MAX_INTERVAL`.
- A ledger bounds the loss, probes and drafting itself included: see `loss_ledger`.
- Deterministic: decisions depend on what was told, and clocks are read by the caller.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from plait.drafting.acceptance import Acceptance
from plait.drafting.cost_model import DraftLimits, DraftPlan, RowDraft, best_plan, draft_order, shared_out
from plait.drafting.draft import Draft
from plait.drafting.loss_ledger import LossLedger
from plait.drafting.target_time import MAX_JUMP, TargetTime

PATIENCE = 8
"""Steps without a draft worth verifying before drafting turns itself off."""
MIN_INTERVAL = 8
MAX_INTERVAL = 128
"""Steps between probes, which double from the least to the most while probes show nothing."""
PROBE_TOKENS = 8
DRAFT_STEP = 0.1
"""Weight of the newest measurement of the time to draft."""


class DraftPlanner:
    def __init__(
        self, profile: Mapping[tuple[int, int], float], limits: DraftLimits | None = None, max_loss_share: float = 0.01
    ) -> None:
        """`profile`: (rows, tokens per row) -> seconds of a step, for every pair of a grid that has one token per row; see
        `target_time`."""
        self.times, self.acceptance, self.ledger = TargetTime(profile), Acceptance(), LossLedger(max_loss_share)
        self.limits = limits or DraftLimits()
        self.draft_s_per_row = 2e-5
        self._num_empty = 0
        self._interval = MIN_INTERVAL
        self._num_to_check = self._num_to_probe = 0
        """Steps until the engine drafts again, and until it may probe."""

    @property
    def is_on(self) -> bool:
        return self._num_empty < PATIENCE

    def wants_drafts(self, num_rows: int) -> bool:
        """Whether drafting for the next step is worth its own time; ask once a step."""
        self._num_to_probe -= 1
        self._num_to_check -= 1
        if not self.is_on and self._num_to_check > 0:
            return False
        return num_rows > 0 and self.ledger.balance_s >= self.draft_s_per_row * num_rows

    def plan(self, drafts: Sequence[Draft], is_tail: Sequence[bool] = ()) -> DraftPlan:
        """Say how many tokens of each row's draft to verify; one draft a row, an empty one where there is none."""
        tails = is_tail or [False] * len(drafts)
        rows = [
            RowDraft(self.acceptance.calibrate(draft.probabilities, tail), tail) for draft, tail in zip(drafts, tails, strict=True)
        ]
        draft_s = self.draft_s_per_row * len(rows)
        limits = replace(self.limits, max_extra_s=min(self.limits.max_extra_s, max(self.ledger.balance_s - draft_s, 0.0)))
        found = best_plan(rows, self.times, draft_s, limits)
        if found.num_draft_tokens:
            self._num_empty, self._interval = 0, MIN_INTERVAL
            return found
        self._num_empty += 1
        if self.is_on:
            self._num_to_probe = self._interval
            return found
        self._num_to_check = self._steps_between_checks(found.seconds, draft_s)
        return (self._probe(drafts, tails, limits) if self._num_to_probe <= 0 else None) or found

    def observe(
        self,
        num_rows: int,
        seconds: float,
        plan: DraftPlan | None = None,
        drafts: Sequence[Draft] = (),
        accepted: Sequence[int] = (),
        is_tail: Sequence[bool] = (),
        draft_s: float = 0.0,
    ) -> None:
        """Take a step: the time of the model, the plan and drafts it ran with, the draft tokens accepted in each row.

        `draft_s` is what drafting and planning took.
        """
        num_drafted = plan.num_draft_tokens if plan else 0
        self.times.observe(num_rows, num_rows + num_drafted, seconds)
        if drafts:
            self.draft_s_per_row += DRAFT_STEP * (draft_s / num_rows - self.draft_s_per_row)
        if plan and num_drafted:
            self._learn(plan, drafts, accepted, is_tail or [False] * num_rows)
        plain_s = self.times.seconds(num_rows, num_rows)
        # What was measured, not what was expected: a model that errs would spend what is not there.
        verify_s = min(seconds, MAX_JUMP * self.times.seconds(num_rows, num_rows + num_drafted))
        extra_s = (verify_s - plain_s if num_drafted else 0.0) + draft_s
        self.ledger.book(plain_s, extra_s, sum(accepted) * plain_s / num_rows)

    def _learn(self, plan: DraftPlan, drafts: Sequence[Draft], accepted: Sequence[int], is_tail: Sequence[bool]) -> None:
        for num, draft, num_accepted, tail in zip(plan.draft_tokens, drafts, accepted, is_tail, strict=True):
            if num:
                self.acceptance.observe(draft.probabilities[:num], num_accepted, tail)

    def _probe(self, drafts: Sequence[Draft], tails: Sequence[bool], limits: DraftLimits) -> DraftPlan | None:
        """Verify what the drafts themselves think best, as far as the ledger pays for it."""
        rows = [RowDraft(draft.probabilities, tail) for draft, tail in zip(drafts, tails, strict=True)]
        order = draft_order(rows, replace(limits, max_draft_tokens=PROBE_TOKENS))
        num_rows = len(rows)
        plain_s = self.times.seconds(num_rows, num_rows)
        while order and self.times.seconds(num_rows, num_rows + len(order)) - plain_s > limits.max_extra_s:
            order.pop()
        if not order:
            return None
        self._num_to_probe = self._interval = min(2 * self._interval, MAX_INTERVAL)
        seconds = self.times.seconds(num_rows, num_rows + len(order)) + self.draft_s_per_row * num_rows
        return DraftPlan(shared_out(order, num_rows), float(num_rows), seconds)

    def _steps_between_checks(self, plain_s: float, draft_s: float) -> int:
        return min(ceil(2 * draft_s / max(self.ledger.max_loss_share * plain_s, 1e-9)), MAX_INTERVAL)
