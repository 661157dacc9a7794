"""Answers of earlier steps: bounded, and nobody's but their owner's."""

from plait.drafting.local_drafter import LocalDrafter
from plait.drafting.prompt_history import PROMPT_TOKENS, PromptHistory, prompt_key


def test_history_is_bounded() -> None:
    history = PromptHistory(sequences_per_prompt=2, max_tokens=10 + 2 * PROMPT_TOKENS)
    for prompt in "abc":
        history.record(prompt, [(1, 2), (3, 4, 5)])
    assert history.num_tokens == 10
    assert (history.answers("a"), history.answers("c")) == ((), ((3, 4, 5), (1, 2)))
    history.record("d", [(1,) * (history.max_tokens + 1)])
    assert history.num_tokens == 0


def test_prompts_with_short_answers_or_none_are_bounded_too() -> None:
    history = PromptHistory(max_tokens=10 * (PROMPT_TOKENS + 1))
    for number in range(100):
        history.record(f"unanswered {number}", [()])
        history.record(f"short {number}", [(1,)])
    known = [name for kind in ("unanswered", "short") for n in range(100) if history.answers(name := f"{kind} {n}")]
    assert known == [f"short {n}" for n in range(90, 100)]
    assert history._answers.keys() == set(known)


def test_a_key_is_of_one_owner_and_one_prompt() -> None:
    keys = [
        prompt_key(owner, prompt) for owner in (("t", "a"), ("t", "b"), ("t/a", ""), ("", "t")) for prompt in ((1, 2), (1,), ())
    ]
    assert len(set(keys)) == len(keys)
    assert prompt_key(("t", "a"), [1, 2]) == keys[0]


def test_a_groups_answers_are_what_its_requests_drew() -> None:
    drafter = LocalDrafter()
    assert drafter.answers("g") == []
    drafter.register_group("g", (1, 2, 3), history=[(9, 9)])
    drafter.append("g", "a", (4, 5))
    drafter.append("g", "b", ())
    drafter.tree("g")
    drafter.append("g", "a", (6,))
    assert drafter.answers("g") == [(4, 5, 6), ()]
