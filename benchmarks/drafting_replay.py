"""How many tokens a verify step gives, told from answers that are there already: no model, no clock. Pure.

Each answer of a group is written again from its first token, drafted by a tree that holds the prompt, so many of its siblings
whole, and what the answer itself has so far. A step gives the draft's right tokens and one more, as in the engine; of several
paths the one that is right the furthest counts, and the last step of an answer gives no more than is left of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.drafting_groups import Group
from plait.drafting.draft import Draft, DraftQuery
from plait.drafting.local_drafter import LocalDrafter

SIBLINGS = (0, 3, 7, 15)
PATHS = (1, 4)
MAX_DRAFT_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Replayed:
    tokens: int = 0
    steps: int = 0

    def __add__(self, other: "Replayed") -> "Replayed":
        return Replayed(self.tokens + other.tokens, self.steps + other.steps)

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.steps if self.steps else 0.0


def replay_rows(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """One row for each stage, task (and "all"), number of siblings and of paths."""
    rows = []
    for stage in dict.fromkeys(group.stage for group in groups):
        tasks = list(dict.fromkeys(group.task for group in groups if group.stage == stage))
        for siblings in SIBLINGS:
            for paths in PATHS:
                found = {
                    task: sum((replay(g, siblings, paths) for g in groups if (g.stage, g.task) == (stage, task)), Replayed())
                    for task in tasks
                }
                found["all"] = sum(found.values(), Replayed())
                rows += [_row(stage, task, siblings, paths, value) for task, value in found.items()]
    return rows


def replay(group: Group, num_siblings: int, num_paths: int) -> Replayed:
    """All answers of a group; the siblings of answer i are those after it, round and round."""
    size = len(group.answers)
    total = Replayed()
    for number, answer in enumerate(group.answers):
        known = [group.answers[(number + 1 + i) % size] for i in range(min(num_siblings, size - 1))]
        total += replay_answer(group.prompt, answer, known, num_paths)
    return total


def replay_answer(prompt: tuple[int, ...], answer: tuple[int, ...], known: Sequence[tuple[int, ...]], num_paths: int) -> Replayed:
    drafter = LocalDrafter()
    drafter.register_group("g", prompt)
    for number, sibling in enumerate(known):
        drafter.append("g", f"sibling-{number}", sibling)
    drafter.append("g", "own", ())
    place = steps = 0
    while place < len(answer):
        drafts = drafter.speculate_paths(DraftQuery("g", "own", max_tokens=MAX_DRAFT_TOKENS), num_paths)
        fresh = answer[place : place + 1 + max((num_right(draft, answer[place:]) for draft in drafts), default=0)]
        drafter.append("g", "own", fresh)
        place, steps = place + len(fresh), steps + 1
    return Replayed(len(answer), steps)


def num_right(draft: Draft, rest: Sequence[int]) -> int:
    """Tokens of the draft that come true before the first that does not."""
    pairs = zip(draft.tokens, rest, strict=False)
    return next((i for i, (guess, token) in enumerate(pairs) if guess != token), min(len(draft.tokens), len(rest)))


def _row(stage: str, task: str, siblings: int, paths: int, found: Replayed) -> dict[str, Any]:
    return {
        "part": "acceptance", "stage": stage, "task": task, "siblings": siblings, "paths": paths, "tokens": found.tokens,
        "steps": found.steps, "tokens_per_step": found.tokens_per_step,
    }  # fmt: skip
