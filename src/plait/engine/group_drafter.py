"""Drafts rows from their siblings: joins a `LocalDrafter` and a `DraftPlanner` to what the engine asks of a drafter.

- The planner decides whether to draft and how many tokens of each draft to verify.
- Tokens are learned whether or not drafts are made, so that siblings here and elsewhere profit.
- A group is followed from the moment a chunk of it is queued, so that no token of a sibling elsewhere is missed.
- A generation without a group drafts from itself alone, and nobody else is told of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plait.drafting.cost_model import DraftPlan
from plait.drafting.draft import NO_DRAFT, Draft, DraftIncrement, DraftQuery
from plait.drafting.local_drafter import LocalDrafter
from plait.drafting.planner import DraftPlanner
from plait.engine.speculation import DraftWish, StepReport

ALONE = "alone/"
"""Groups of generations without one; no group of the deployment begins so."""


@dataclass(slots=True)
class _Running:
    group: str
    num_tokens: int
    """Of the generation, that the drafter knows."""


class GroupDrafter:
    """An `engine.speculation.Drafter`. Updates are given once `update_tokens` have come together, or a chunk has ended."""

    def __init__(self, local: LocalDrafter, planner: DraftPlanner, update_tokens: int = 64) -> None:
        self.local, self.planner, self.update_tokens = local, planner, update_tokens
        self._running: dict[str, _Running] = {}
        self._num_new_tokens = 0
        self._has_ended = False
        self._plan: DraftPlan | None = None
        self._drafts: list[Draft] = []
        self._is_tail: list[bool] = []

    # ---- siblings elsewhere

    def updates(self) -> list[DraftIncrement]:
        """Tokens for the controller, or none yet."""
        if self._num_new_tokens < self.update_tokens and not self._has_ended:
            return []
        self._num_new_tokens, self._has_ended = 0, False
        return self.local.take_updates()

    def take_in(self, increments: Iterable[DraftIncrement]) -> None:
        """Tokens of siblings that run elsewhere, or of earlier answers to the same prompt."""
        self.local.absorb(increments)

    def end_group(self, group: str) -> None:
        """No more generations of it will come."""
        self.local.forget_group(group)

    # ---- what the engine tells

    def follow(self, group: str, prompt: tuple[int, ...]) -> None:
        if group:
            self.local.register_group(group, prompt)

    def start(self, group: str, request_id: str, prompt: tuple[int, ...], generated: tuple[int, ...]) -> None:
        running = self._running[request_id] = _Running(group or ALONE + request_id, 0)
        self.local.register_group(running.group, prompt)
        self._learn(request_id, running, generated)

    def drawn(self, request_id: str, tokens: Sequence[int]) -> None:
        self._learn(request_id, self._running[request_id], tokens)

    def measured(self, report: StepReport) -> None:
        self.planner.observe(
            report.num_rows, report.decode_s, self._plan, self._drafts, report.accepted_R, self._is_tail, report.draft_s
        )

    def end(self, request_id: str) -> None:
        running = self._running.pop(request_id)
        if running.group.startswith(ALONE):
            self.local.forget_group(running.group)
        else:
            self._has_ended = True

    def _learn(self, request_id: str, running: _Running, tokens: Sequence[int]) -> None:
        start = running.num_tokens
        running.num_tokens += len(tokens)
        if running.group.startswith(ALONE):
            self.local.absorb([DraftIncrement(running.group, request_id, start, tuple(tokens))])
        else:
            self.local.append(running.group, request_id, tokens, start)
            self._num_new_tokens += len(tokens)

    # ---- what the engine asks

    def draft(self, wishes: Sequence[DraftWish]) -> list[tuple[int, ...]]:
        self._plan, self._drafts = None, []
        if not self.planner.wants_drafts(len(wishes)):
            return [()] * len(wishes)
        self._drafts, self._is_tail = [self._draft(wish) for wish in wishes], [wish.is_tail for wish in wishes]
        self._plan = self.planner.plan(self._drafts, self._is_tail)
        return [draft.tokens[:length] for draft, length in zip(self._drafts, self._plan.draft_tokens, strict=True)]

    def _draft(self, wish: DraftWish) -> Draft:
        if wish.max_tokens <= 0:
            return NO_DRAFT
        query = DraftQuery(self._running[wish.request_id].group, wish.request_id, max_tokens=wish.max_tokens)
        return self.local.batch_speculate([query])[0]
