"""What the engine asks of a drafter, and what it tells it.

A draft is a guess of a row's next tokens: one path or, where only a few rows are left, a tree of several. The engine draws the
token at each position as it would without a draft and goes on past it only if the draft has the same one: a wrong draft costs time
and changes nothing. The clock is passed in; times are in seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from plait.drafting.draft_tree import MAX_PATHS, NO_TREE, DraftTree
from plait.drafting.prompt_history import Owner
from plait.engine.row import Row
from plait.types.chunks import Chunk

Clock = Callable[[], float]

TAIL_ROWS = 4
MAX_DRAFT_TOKENS = 8
"""Longest draft that is verified; `models.invariance` tests spans of up to one token more."""


@dataclass(frozen=True, slots=True)
class DraftWish:
    """A row that is about to draw. A draft with longer paths than `max_tokens`, or with more of them than `max_paths`, is cut."""

    request_id: str
    max_tokens: int
    is_tail: bool = False
    """At most `TAIL_ROWS` rows draw and nothing waits: these are the last."""
    refilled: float = 0.0
    """The share of the rows that draw whose places others wait for."""

    @property
    def max_paths(self) -> int:
        """Further paths pay where few rows leave much of a processor's width unused."""
        return MAX_PATHS if self.is_tail else 1


@dataclass(frozen=True, slots=True)
class StepReport:
    """One decode step of the rows `request_ids`: what was verified for each and what each drew.

    `draft_s` is what asking for drafts took, and telling the drafter of the step before; `decode_s` the forward pass and the draw.
    `drawn_R` includes one token of each row that is no draft's, and what comes after a stop and is dropped.
    """

    request_ids: tuple[str, ...]
    trees_R: tuple[DraftTree, ...]
    drawn_R: tuple[tuple[int, ...], ...]
    draft_s: float
    decode_s: float

    @property
    def num_rows(self) -> int:
        return len(self.request_ids)

    @property
    def proposed_R(self) -> tuple[int, ...]:
        return tuple(map(len, self.trees_R))

    @property
    def accepted_R(self) -> tuple[int, ...]:
        return tuple(max(0, len(tokens) - 1) for tokens in self.drawn_R)

    @property
    def drawn_tokens(self) -> int:
        return sum(map(len, self.drawn_R))


class Drafter(Protocol):
    """Is asked before each decode step; `engine.group_drafter` has one that drafts from siblings."""

    def wants_drafts(self, num_rows: int, is_tail: bool) -> bool:
        """Whether to ask for drafts before a step of so many rows."""
        ...

    def follow(self, group: str, prompt: tuple[int, ...], owner: Owner = ...) -> None:
        """A chunk of the group waits to start; empty: it is alone. `owner` is whose it is."""
        ...

    def start(self, group: str, request_id: str, prompt: tuple[int, ...], generated: tuple[int, ...], owner: Owner = ...) -> None:
        """A chunk starts; `generated` are the tokens of its generation's earlier chunks."""
        ...

    def draft(self, wishes: Sequence[DraftWish]) -> Sequence[DraftTree]:
        """A draft for each of the rows that are about to draw; empty for none."""
        ...

    def drawn(self, request_id: str, tokens: Sequence[int]) -> None:
        """A row has these new tokens."""
        ...

    def measured(self, report: StepReport) -> None:
        """What the step was worth; comes after each `wants_drafts`."""
        ...

    def end(self, request_id: str) -> None:
        """A chunk has ended, whatever its reason."""
        ...


class Speculation:
    """A drafter and a clock, as the engine uses them, and what came of it."""

    def __init__(self, drafter: Drafter, clock: Clock) -> None:
        self.drafter, self.clock = drafter, clock
        self.num_steps = 0
        self.num_verify_steps = 0
        self.num_rows = 0
        """Rows of all steps together."""
        self.num_verified_rows = 0
        """How often a row had a draft to verify."""
        self.num_branched_rows = 0
        """How often a row had several paths to verify."""
        self.num_branch_tokens = 0
        """Tokens accepted beside the first path."""
        self.num_proposed = 0
        self.num_accepted = 0
        self.num_drawn = 0
        self.num_waiting = 0
        """Chunks that have not started; the engine keeps it."""
        self._draft_s = 0.0

    @property
    def tokens_per_row_step(self) -> float:
        """Mean number of tokens that a row draws in a step; 1 without drafting, 0 before the first step."""
        return self.num_drawn / self.num_rows if self.num_rows else 0.0

    def follow(self, chunk: Chunk) -> None:
        """The chunk is queued."""
        self.drafter.follow(chunk.group, prompt_of(chunk), owner_of(chunk))

    def start(self, row: Row) -> None:
        chunk, prompt = row.chunk, prompt_of(row.chunk)
        self.drafter.start(chunk.group, row.generation, prompt, chunk.context_tokens[len(prompt) :], owner_of(chunk))

    def drafts(self, rows: Sequence[Row], slot_tokens: int, vocab_size: int) -> list[DraftTree] | None:
        """What to verify for each row, within what its chunk may still draw and its slot holds; None, if there is nothing."""
        before = self.clock()
        is_tail = not self.num_waiting and len(rows) <= TAIL_ROWS
        trees: list[DraftTree] = []
        if self.drafter.wants_drafts(len(rows), is_tail):
            refilled = min(self.num_waiting / len(rows), 1.0)
            wishes = [DraftWish(row.generation, most_draft_tokens(row, slot_tokens), is_tail, refilled) for row in rows]
            drafts = self.drafter.draft(wishes)
            trees = [tree.cut(wish.max_tokens, wish.max_paths, vocab_size) for tree, wish in zip(drafts, wishes, strict=True)]
        self._draft_s += self.clock() - before
        return trees if any(trees) else None

    def measured(
        self, rows: Sequence[Row], trees: Sequence[DraftTree] | None, drawn_R: Sequence[tuple[int, ...]], decode_s: float
    ) -> None:
        """Count a step in which each row drew these tokens, and tell the drafter; what that takes, the next step's drafts are
        charged with."""
        before = self.clock()
        names, verified = tuple(row.generation for row in rows), (NO_TREE,) * len(rows) if trees is None else tuple(trees)
        report = StepReport(names, verified, tuple(drawn_R), self._draft_s, decode_s)
        self.num_steps += 1
        self.num_rows += report.num_rows
        self.num_drawn += report.drawn_tokens
        if trees is not None:
            self._count(report)
        self.drafter.measured(report)
        self._draft_s = self.clock() - before

    def _count(self, report: StepReport) -> None:
        self.num_verify_steps += 1
        for tree, tokens in zip(report.trees_R, report.drawn_R, strict=True):
            if len(tree):
                self.num_verified_rows += 1
                self.num_proposed += len(tree)
                self.num_accepted += max(0, len(tokens) - 1)
                self.num_branched_rows += tree.num_first < len(tree)
                self.num_branch_tokens += sum(node >= tree.num_first for node in tree.follow(tokens))


def owner_of(chunk: Chunk) -> Owner:
    return chunk.policy.tenant, chunk.policy.task


def prompt_of(chunk: Chunk) -> tuple[int, ...]:
    """The context before the first token drawn for this generation."""
    return chunk.context_tokens[: len(chunk.context_tokens) - chunk.generated_tokens]


def most_draft_tokens(row: Row, slot_tokens: int) -> int:
    """Draft tokens that make sense for a row: after each it draws one more. Pure."""
    num_tokens = len(row.tokens)
    may_draw = min(row.longest_tokens - num_tokens, row.chunk.sampling.max_new_tokens - row.rule.num_generated)
    return max(0, min(MAX_DRAFT_TOKENS, may_draw - 1, slot_tokens - num_tokens)) if row.may_draft else 0
