"""Drafts rows from their siblings: joins a `LocalDrafter` and a `DraftPlanner` to what the engine asks of a drafter.

- The planner decides whether to draft and which tokens of each draft to verify.
- Tokens are kept whether or not drafts are made, so that siblings here and elsewhere profit.
- A group is followed from the moment a chunk of it is queued, so that no token of a sibling elsewhere is missed.
- With a history a group begins with answers to its prompt of earlier steps, of the same tenant and task.
- A generation without a group drafts from itself alone, and nobody else is told of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from plait.drafting.cost_model import DraftPlan
from plait.drafting.draft import DraftIncrement, DraftQuery
from plait.drafting.draft_tree import NO_TREE, DraftTree
from plait.drafting.local_drafter import LocalDrafter
from plait.drafting.planner import DraftPlanner, Step
from plait.drafting.prompt_history import Owner, PromptHistory, prompt_key
from plait.engine.speculation import DraftWish, StepReport

ALONE = "alone/"
"""Groups of generations without one; no group of the deployment begins so."""


@dataclass(slots=True)
class _Running:
    group: str
    num_tokens: int
    """Of the generation, that the drafter knows."""
    fresh: list[int] = field(default_factory=list)
    """Tokens after them."""


class GroupDrafter:
    """An `engine.speculation.Drafter`. Updates are given once `update_tokens` have come together, or a chunk has ended."""

    def __init__(
        self, local: LocalDrafter, planner: DraftPlanner, update_tokens: int = 64, history: PromptHistory | None = None
    ) -> None:
        self.local, self.planner, self.update_tokens, self.history = local, planner, update_tokens, history
        self._prompt_keys: dict[str, str] = {}
        """Of groups whose answers go into the history at their end."""
        self._running: dict[str, _Running] = {}
        self._num_new_tokens = 0
        self._has_ended = False
        self._plan: DraftPlan | None = None
        self._trees: list[DraftTree] = []
        self._is_tail: list[bool] = []
        self._refilled = 0.0

    # ---- siblings elsewhere

    def updates(self) -> list[DraftIncrement]:
        """Tokens for the controller, or none yet."""
        if self._num_new_tokens < self.update_tokens and not self._has_ended:
            return []
        self._num_new_tokens, self._has_ended = 0, False
        self._tell_all()
        return self.local.take_updates()

    def take_in(self, increments: Iterable[DraftIncrement]) -> None:
        """Tokens of siblings that run elsewhere, or of earlier answers to the same prompt."""
        self.local.absorb(increments)

    def end_group(self, group: str) -> None:
        """No more generations of it will come."""
        key = self._prompt_keys.pop(group, "")
        if self.history is not None and key:
            self.history.record(key, self.local.answers(group))
        self.local.forget_group(group)

    # ---- what the engine tells

    def follow(self, group: str, prompt: tuple[int, ...], owner: Owner = ("", "")) -> None:
        if not group or group in self.local:
            return
        if self.history is None:
            self.local.register_group(group, prompt)
        else:
            key = self._prompt_keys[group] = prompt_key(owner, prompt)
            self.local.register_group(group, prompt, self.history.answers(key))

    def start(
        self, group: str, request_id: str, prompt: tuple[int, ...], generated: tuple[int, ...], owner: Owner = ("", "")
    ) -> None:
        running = self._running[request_id] = _Running(group or ALONE + request_id, 0, list(generated))
        if group:
            self.follow(group, prompt, owner)
        else:
            self.local.register_group(running.group, prompt)
        self._tell(request_id, running)
        self.planner.saved.start(request_id)

    def drawn(self, request_id: str, tokens: Sequence[int]) -> None:
        self._running[request_id].fresh += tokens
        self._num_new_tokens += len(tokens)

    def measured(self, report: StepReport) -> None:
        step = None
        if self._plan is not None:
            step = Step(self._plan, self._trees, self._is_tail, report.request_ids, report.drawn_R, self._refilled)
        self.planner.observe(report.num_rows, report.decode_s, step, report.draft_s)

    def end(self, request_id: str) -> None:
        running = self._running.pop(request_id)
        self.planner.saved.end(request_id)
        if running.group.startswith(ALONE):
            self.local.forget_group(running.group)
        else:
            self._tell(request_id, running)
            self._has_ended = True

    def _tell_all(self) -> None:
        for request_id, running in self._running.items():
            if running.fresh:
                self._tell(request_id, running)

    def _tell(self, request_id: str, running: _Running) -> None:
        """Hand the drafter what it does not know yet."""
        start, tokens = running.num_tokens, running.fresh
        running.num_tokens, running.fresh = start + len(tokens), []
        if running.group.startswith(ALONE):
            self.local.absorb([DraftIncrement(running.group, request_id, start, tuple(tokens))])
        else:
            self.local.append(running.group, request_id, tokens, start)

    @property
    def _num_unlearnt(self) -> int:
        return self.local.num_unlearnt + sum(len(running.fresh) for running in self._running.values())

    # ---- what the engine asks

    def wants_drafts(self, num_rows: int, is_tail: bool) -> bool:
        self._plan = None
        return self.planner.wants_drafts(num_rows, is_tail, self._num_unlearnt)

    def draft(self, wishes: Sequence[DraftWish]) -> list[DraftTree]:
        self._tell_all()
        self._trees, self._is_tail = [self._tree(wish) for wish in wishes], [wish.is_tail for wish in wishes]
        self._refilled = wishes[0].refilled if wishes else 0.0
        self._plan = self.planner.plan(self._trees, self._is_tail, [wish.request_id for wish in wishes], self._refilled)
        return [tree.pick(nodes) for tree, nodes in zip(self._trees, self._plan.nodes, strict=True)]

    def _tree(self, wish: DraftWish) -> DraftTree:
        if wish.max_tokens <= 0:
            return NO_TREE
        query = DraftQuery(self._running[wish.request_id].group, wish.request_id, max_tokens=wish.max_tokens)
        return self.local.speculate_tree(query, min(wish.max_paths, self.planner.num_paths))
