"""What grouping is for: on answers that resemble each other, siblings and several paths raise the number of accepted tokens."""

from random import Random

import pytest

from plait.drafting.draft import Draft, DraftQuery
from plait.drafting.local_drafter import LocalDrafter

NUM_TOKENS = 200
PHRASES = [[Random(seed).randrange(400) for _ in range(12)] for seed in range(30)]


def answer(seed: int) -> list[int]:
    """A text of phrases that all answers share, in an order and with slips of its own."""
    random = Random(seed)
    found: list[int] = []
    while len(found) < NUM_TOKENS:
        found += [token if random.random() > 0.08 else random.randrange(400) for token in random.choice(PHRASES)]
    return found[:NUM_TOKENS]


def num_right(draft: Draft, rest: list[int]) -> int:
    return next(
        (i for i, (drafted, real) in enumerate(zip(draft.tokens, rest, strict=False)) if drafted != real), len(draft.tokens)
    )


def mean_accepted(num_siblings: int, num_paths: int) -> float:
    """Accepted draft tokens per step, over a whole answer; all siblings are as far on as the answer itself."""
    drafter, texts = LocalDrafter(), [answer(seed) for seed in range(num_siblings + 1)]
    drafter.register_group("g")
    accepted = []
    for end in range(1, NUM_TOKENS - 1):
        for i, text in enumerate(texts):
            drafter.append("g", f"r{i}", text[end - 1 : end])
        paths = drafter.speculate_paths(DraftQuery("g", "r0"), num_paths)
        accepted.append(max((num_right(path, texts[0][end:]) for path in paths), default=0))
    return sum(accepted) / len(accepted)


def test_more_siblings_and_more_paths_are_accepted_more() -> None:
    alone, three, fifteen = (mean_accepted(num, 1) for num in (0, 3, 15))
    assert alone < three < fifteen
    assert fifteen > 1.3 * alone
    assert mean_accepted(15, 4) > fifteen


def test_one_path_is_the_draft() -> None:
    drafter = LocalDrafter()
    drafter.register_group("g")
    for i in range(6):
        drafter.append("g", f"r{i}", answer(i))
    query = DraftQuery("g", "r9", tuple(PHRASES[0][:3]))
    assert drafter.speculate_paths(query, 1) == drafter.batch_speculate([query])
    assert drafter.batch_speculate([query])[0].score == pytest.approx(sum(drafter.batch_speculate([query])[0].probabilities))
