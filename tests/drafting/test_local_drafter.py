"""One engine's drafter learns from its rows, its siblings, the prompt and the past, and stays bounded."""

from plait.drafting.draft import NO_DRAFT, DraftIncrement, DraftQuery
from plait.drafting.local_drafter import LocalDrafter

PROMPT = (1, 2, 3, 4, 5)
ANSWER = tuple(range(20, 40))


def draft(drafter: LocalDrafter, request: str, tail: tuple[int, ...] = (), group: str = "g") -> tuple[int, ...]:
    return drafter.batch_speculate([DraftQuery(group, request, tail, 4)])[0].tokens


def test_siblings_here_and_elsewhere_are_learnt_from() -> None:
    drafter = LocalDrafter()
    drafter.register_group("g", PROMPT)
    drafter.append("g", "own", ANSWER[:3])
    assert draft(drafter, "own") == ()
    drafter.absorb([DraftIncrement("g", "elsewhere", 0, ANSWER)])
    assert draft(drafter, "own") == ANSWER[3:7]
    assert draft(drafter, "own", ANSWER[5:8]) == ANSWER[8:12]


def test_the_first_token_is_drafted_from_siblings_that_have_begun() -> None:
    drafter = LocalDrafter()
    drafter.register_group("g", PROMPT)
    drafter.append("g", "a", ANSWER)
    drafter.append("g", "b", ())
    assert draft(drafter, "b") == draft(drafter, "c", PROMPT) == ANSWER[:4]


def test_the_prompt_and_its_own_tokens_count() -> None:
    drafter = LocalDrafter()
    drafter.register_group("g", PROMPT)
    drafter.append("g", "a", (9, 2, 3))
    assert draft(drafter, "a")[:2] == (4, 5)
    drafter.append("g", "a", (8, 7, 6, 0, 8))
    assert draft(drafter, "a") == (7, 6, 0, 8)


def test_earlier_answers_to_the_same_prompt_are_learnt_from() -> None:
    drafter = LocalDrafter()
    drafter.register_group("g", PROMPT, history=[ANSWER])
    drafter.append("g", "a", ANSWER[:2])
    assert draft(drafter, "a") == ANSWER[2:6]


def test_groups_are_apart() -> None:
    drafter = LocalDrafter()
    for group in "gh":
        drafter.register_group(group, PROMPT)
    drafter.append("g", "a", ANSWER)
    drafter.append("h", "b", ANSWER[:4])
    assert draft(drafter, "b", group="h") == ()
    assert drafter.batch_speculate([DraftQuery("nobody", "b")]) == [NO_DRAFT]


def test_repeats_and_gaps_change_nothing() -> None:
    drafter = LocalDrafter()
    drafter.register_group("g")
    drafter.append("g", "a", ANSWER[5:9], start=5)
    drafter.append("g", "a", ANSWER[:7], start=0)
    drafter.append("g", "a", ANSWER[2:4], start=2)
    assert drafter.tree("g").tokens("a") == ANSWER[:9]


def test_updates_are_joined_and_given_once() -> None:
    drafter = LocalDrafter()
    drafter.register_group("g")
    for token in ANSWER[:3]:
        drafter.append("g", "a", (token,))
    drafter.append("g", "b", ANSWER[4:6], start=4)
    drafter.append("g", "b", ANSWER[:4], start=0)
    drafter.absorb([DraftIncrement("g", "c", 0, ANSWER)])
    assert drafter.take_updates() == [
        DraftIncrement("g", "a", 0, ANSWER[:3]),
        DraftIncrement("g", "b", 4, ANSWER[4:6]),
        DraftIncrement("g", "b", 0, ANSWER[:4]),
    ]
    assert drafter.take_updates() == []


def test_what_is_forgotten_is_drafted_no_more() -> None:
    drafter = LocalDrafter()
    drafter.register_group("g", PROMPT)
    drafter.append("g", "a", ANSWER)
    drafter.append("g", "b", ANSWER[:3])
    drafter.forget("a")
    drafter.forget("never seen")
    assert draft(drafter, "b") == ()
    assert {update.request for update in drafter.take_updates()} == {"b"}
    drafter.forget_group("g")
    assert drafter.groups == ()
    assert drafter.num_tokens == 0
    drafter.append("g", "a", ANSWER)
    assert draft(drafter, "a") == ()


def test_memory_is_bounded_and_the_group_used_least_recently_goes_first() -> None:
    drafter = LocalDrafter(depth=4, group_tokens=40, total_tokens=100)
    for group in "ghi":
        drafter.register_group(group)
        drafter.append(group, f"{group}0", range(30))
    drafter.append("g", "g0", range(30, 40))
    drafter.register_group("j")
    drafter.append("j", "j0", range(30))
    assert set(drafter.groups) == {"g", "i", "j"}
    assert drafter.num_tokens == sum(drafter.tree(group).num_tokens for group in drafter.groups) == 100
    for step in range(50):
        drafter.append("g", f"g{step}", range(30))
        assert drafter.num_tokens <= 100
        assert drafter.tree("g").num_tokens <= 40


def test_tokens_are_learnt_when_a_draft_is_asked_for() -> None:
    drafter = LocalDrafter()
    drafter.register_group("g", PROMPT)
    drafter.append("g", "a", ANSWER)
    drafter.append("g", "b", ANSWER[:3])
    assert drafter.num_unlearnt == drafter.num_tokens == 3 * len(PROMPT) + len(ANSWER) + 3
    assert draft(drafter, "b") == ANSWER[3:7]
    assert drafter.num_unlearnt == 0
    assert drafter.num_tokens == drafter.tree("g").num_tokens == 3 * len(PROMPT) + len(ANSWER) + 3
    drafter.append("g", "b", ANSWER[3:5])
    drafter.forget_group("g")
    assert drafter.num_unlearnt == drafter.num_tokens == 0


def test_several_paths_are_a_tree() -> None:
    drafter = LocalDrafter()
    drafter.register_group("g")
    for name, tokens in (("a", (1, 2, 3)), ("b", (1, 2, 3)), ("c", (1, 2, 4)), ("d", (1, 5)), ("own", (1,))):
        drafter.append("g", name, tokens)
    query = DraftQuery("g", "own", max_tokens=2)
    tree = drafter.speculate_tree(query, 4)
    paths = drafter.speculate_paths(query, 4)
    assert [tuple(tree.tokens[n] for n in tree.path(end)) for end in (1, 2, 3)] == [path.tokens for path in paths]
    assert tree.probabilities == (0.6, 0.4, 0.2, 0.2)
    assert drafter.speculate_tree(query, 1).tokens == (2, 3)
    assert len(drafter.speculate_tree(DraftQuery("nobody", "own"), 4)) == 0
