"""Drafts rows from their siblings: joins a `LocalDrafter` and a `DraftPlanner` to what the engine asks of a drafter.

- The planner decides how long drafts may be; where it says zero, nothing is asked of the trees.
- Tokens are learned whether or not drafts are made, so that siblings here and elsewhere profit.
- A generation without a group drafts from itself alone, and nobody else is told of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from plait.drafting.draft import NO_DRAFT, Draft, DraftIncrement, DraftQuery
from plait.drafting.local_drafter import LocalDrafter
from plait.engine.speculation import DraftWish, StepReport

ALONE = "alone/"
"""Groups of generations without one; no group of the deployment begins so."""


class DraftPlanner(Protocol):
    """How many tokens to draft, from what steps cost and drafts were worth so far."""

    def most_tokens(self, num_rows: int) -> int:
        """The longest draft that may pay in a step of so many rows; 0 while none does."""
        ...

    def lengths(self, drafts: Sequence[Draft]) -> Sequence[int]:
        """How many tokens of each row's draft to verify in a step of these rows."""
        ...

    def measured(self, report: StepReport) -> None: ...


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

    # ---- siblings elsewhere

    def updates(self) -> list[DraftIncrement]:
        """Tokens for the controller, or none yet."""
        if self._num_new_tokens < self.update_tokens and not self._has_ended:
            return []
        self._num_new_tokens, self._has_ended = 0, False
        return self.local.take_updates()

    def take_in(self, increments: Iterable[DraftIncrement]) -> None:
        """Tokens of siblings that run elsewhere."""
        self.local.absorb(increments)

    # ---- what the engine tells

    def start(self, group: str, request_id: str, prompt: tuple[int, ...], generated: tuple[int, ...]) -> None:
        running = self._running[request_id] = _Running(group or ALONE + request_id, 0)
        self.local.register_group(running.group, prompt)
        self._learn(request_id, running, generated)

    def drawn(self, request_id: str, tokens: Sequence[int]) -> None:
        self._learn(request_id, self._running[request_id], tokens)

    def measured(self, report: StepReport) -> None:
        self.planner.measured(report)

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
        most = self.planner.most_tokens(len(wishes))
        if most <= 0:
            return [()] * len(wishes)
        drafts = [self._draft(wish.request_id, min(most, wish.max_tokens)) for wish in wishes]
        lengths = self.planner.lengths(drafts)
        return [draft.tokens[:length] for draft, length in zip(drafts, lengths, strict=True)]

    def _draft(self, request_id: str, max_tokens: int) -> Draft:
        if max_tokens <= 0:
            return NO_DRAFT
        [draft] = self.local.batch_speculate([DraftQuery(self._running[request_id].group, request_id, (), max_tokens)])
        return draft
