"""Drafters for tests: of drafts that are right up to a chosen place, of trees with a right path somewhere, and of anything else."""

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import count

from plait.drafting.draft_tree import DraftTree, tree_of
from plait.drafting.prompt_history import Owner
from plait.engine.speculation import DraftWish, Speculation, StepReport

Guess = Callable[[str, tuple[int, ...], int], Sequence[int]]
"""Of a request's name, the tokens it has drawn so far and the most that are wanted."""
Guesses = Callable[[str, tuple[int, ...], int], Sequence[Sequence[int]]]
"""Several paths."""


class ScriptedDrafter:
    """Drafts what `guesses` says, and checks what the engine tells it."""

    def __init__(self, guesses: Guesses) -> None:
        self.guesses = guesses
        self.drawn_tokens: dict[str, list[int]] = {}
        """Of the chunks that run: the tokens of the whole generation."""
        self.followed: list[tuple[str, tuple[int, ...]]] = []
        self.starts: list[tuple[str, str, tuple[int, ...], tuple[int, ...]]] = []
        self.reports: list[StepReport] = []
        self.asked: tuple[str, ...] | None = None

    def follow(self, group: str, prompt: tuple[int, ...], owner: Owner = ("", "")) -> None:
        self.followed.append((group, prompt))

    def start(
        self, group: str, request_id: str, prompt: tuple[int, ...], generated: tuple[int, ...], owner: Owner = ("", "")
    ) -> None:
        assert request_id not in self.drawn_tokens
        assert (group, prompt) in self.followed
        self.starts.append((group, request_id, prompt, generated))
        self.drawn_tokens[request_id] = list(generated)

    def wants_drafts(self, num_rows: int, is_tail: bool) -> bool:
        assert self.asked is None, "no report after the last drafts"
        return True

    def draft(self, wishes: Sequence[DraftWish]) -> Sequence[DraftTree]:
        self.asked = tuple(wish.request_id for wish in wishes)
        return [tree_of(self.guesses(w.request_id, tuple(self.drawn_tokens[w.request_id]), w.max_tokens)) for w in wishes]

    def measured(self, report: StepReport) -> None:
        assert report.request_ids == self.asked
        assert all(accepted <= proposed for accepted, proposed in zip(report.accepted_R, report.proposed_R, strict=True))
        self.asked = None
        self.reports.append(report)

    def drawn(self, request_id: str, tokens: Sequence[int]) -> None:
        self.drawn_tokens[request_id] += tokens

    def end(self, request_id: str) -> None:
        del self.drawn_tokens[request_id]


def speculation(guess: Guess) -> Speculation:
    """Its clock goes on by a second each time it is read."""
    return several(lambda name, drawn, most: [guess(name, drawn, most)])


def several(guesses: Guesses) -> Speculation:
    return Speculation(ScriptedDrafter(guesses), count().__next__)


def truth(answers: Mapping[str, Sequence[int]]) -> Guess:
    """The true continuation, as long as it is wanted."""
    return lambda name, drawn, most: answers[name][len(drawn) : len(drawn) + most]


def garbage(seed: int, vocab_size: int) -> Guess:
    """Any tokens, some that no vocabulary has, and more of them than are wanted."""
    rng = random.Random(seed)
    return lambda name, drawn, most: [rng.randrange(-2, vocab_size + 9) for _ in range(rng.randrange(most + 4))]


def half_truth(answers: Mapping[str, Sequence[int]], seed: int, vocab_size: int) -> Guess:
    """For some rows the true continuation up to a random place, then wrong tokens, in all of random length."""
    rng = random.Random(seed)

    def guess(name: str, drawn: tuple[int, ...], most: int) -> Sequence[int]:
        if rng.random() < 0.3:
            return ()
        right = [*answers[name][len(drawn) : len(drawn) + rng.randint(0, 9)]]
        return right + [rng.randrange(vocab_size) for _ in range(rng.randint(0, 4))]

    return guess


def bushes(answers: Mapping[str, Sequence[int]], seed: int, vocab_size: int) -> Guesses:
    """Up to six paths that leave the true continuation at random places, in any order, some beyond what is wanted or known."""
    rng = random.Random(seed)

    def guesses(name: str, drawn: tuple[int, ...], most: int) -> Sequence[Sequence[int]]:
        paths = []
        for _ in range(rng.randint(0, 6)):
            right = [*answers[name][len(drawn) : len(drawn) + rng.randint(0, 9)]]
            paths.append(right + [rng.randrange(-1, vocab_size + 2) for _ in range(rng.randint(0, 3))])
        return paths

    return guesses
