"""Answers of earlier steps: bounded, and nobody's but their owner's."""

from plait.drafting.local_drafter import LocalDrafter
from plait.drafting.prompt_history import PromptHistory, prompt_key


def test_history_is_bounded() -> None:
    history = PromptHistory(sequences_per_prompt=2, max_tokens=10)
    for prompt in "abc":
        history.record(prompt, [(1, 2), (3, 4, 5)])
    assert history.num_tokens == 10
    assert (history.answers("a"), history.answers("c")) == ((), ((3, 4, 5), (1, 2)))
    history.record("d", [(1,) * 11])
    assert history.num_tokens == 0


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
