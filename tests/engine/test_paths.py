"""Several paths of a row verified at once: whichever comes true, the tokens and bits are those of plain decoding."""

from dataclasses import replace

import pytest

from plait.drafting.draft_tree import MAX_PATHS
from plait.engine.speculation import TAIL_ROWS
from plait.types.sampling import SamplingParams
from tests.engine.drafters import Guesses, ScriptedDrafter, several, speculation, truth
from tests.engine.test_speculation import PROMPT, VOCAB, answers_of
from tests.engine.tiny import Driver, Request, assert_same, expected, make_engine, model, serve


def beside(answers: dict[str, tuple[int, ...]]) -> Guesses:
    """The true path comes last of four; two others leave it after the first token and after the second, one at once."""

    def guesses(name: str, drawn: tuple[int, ...], most: int) -> list[list[int]]:
        right = [*answers[name][len(drawn) : len(drawn) + most]]
        wrong = [(token + 1) % VOCAB for token in right]
        return [right[:1] + wrong[1:], wrong, right[:2] + wrong[2:3], right]

    return guesses


def test_a_path_beside_the_first_saves_as_much() -> None:
    """And what it has in common with another is computed once."""
    requests = [Request(f"{i}", PROMPT, SamplingParams(36, seed=i), ("base", "t0", "t1")[i]) for i in range(3)]
    answers = answers_of(model(), requests, 256)
    steps = []
    for drafts in (speculation(truth(answers)), several(beside(answers))):
        driver = Driver(make_engine(model(), speculation=drafts))
        driver.submit(*requests)
        outcomes = driver.run()
        for request in requests:
            assert_same(model(), request, outcomes[request.request_id])
        steps.append(drafts.num_steps)
    assert steps[0] == steps[1]
    assert drafts.num_branched_rows >= drafts.num_verified_rows - 3
    assert drafts.num_branch_tokens > 0.7 * drafts.num_accepted
    drafter = drafts.drafter
    assert isinstance(drafter, ScriptedDrafter)
    assert drafter.reports[0].proposed_R == (8 + 8 + 2 + 6,) * 3


def test_more_rows_than_the_tail_verify_one_path_each() -> None:
    requests = [Request(f"{i}", PROMPT, SamplingParams(12, seed=i)) for i in range(TAIL_ROWS + 1)]
    drafts = several(beside(answers_of(model(), requests, 256)))
    outcomes = serve(make_engine(model(), speculation=drafts), requests)
    for request in requests:
        assert_same(model(), request, outcomes[request.request_id])
    assert drafts.num_verified_rows > 0 == drafts.num_branched_rows


@pytest.mark.parametrize("stop_at", [3, 4, 5, 11])
def test_nothing_beyond_a_stop_in_another_path(stop_at: int) -> None:
    """A stop token and, by its text, a stop string, inside of what was accepted beside the first path."""
    plain = Request("plain", PROMPT, SamplingParams(24, seed=1), "t0")
    tokens = expected(model(), plain)[0]
    stop = model().tokenizer.decode(tokens[stop_at : stop_at + 1])
    for params in (SamplingParams(24, seed=1, stop_token_ids=(tokens[stop_at],)), SamplingParams(24, seed=1, stop_strings=(stop,))):
        request = replace(plain, params=params, keep_cache=True)
        drafts = several(beside({"plain": tokens}))
        engine = make_engine(model(), decode=model().tokenizer.decode, speculation=drafts)
        outcome = serve(engine, [request])["plain"]
        assert_same(model(), request, outcome)
        length = len(PROMPT) + len(outcome.tokens) - 1
        assert engine.pool.lookup(engine._root(request.chunk()), (*PROMPT, *tokens)).num_tokens == length
        assert drafts.num_branch_tokens > 0


@pytest.mark.parametrize("turn", [1, -1])
def test_a_path_that_is_not_a_number_is_undone(turn: int) -> None:
    """NaN in the first path while another is right, and the other way round."""
    tiny = model(vocab_size=390, tied_embeddings=False)
    request = Request("a", PROMPT, SamplingParams(12, seed=3), "t0")
    want = expected(tiny, request)
    bad = next(token for token in range(390) if token not in want[0] and token not in PROMPT)
    drafts = several(lambda name, drawn, most: [[bad, 1], want[0][len(drawn) : len(drawn) + most]][::turn])
    embedding, kept = tiny.decoder.embedding_VE, tiny.decoder.embedding_VE[bad].clone()
    try:
        embedding[bad] = float("nan")
        outcome = serve(make_engine(tiny, speculation=drafts), [request])["a"]
    finally:
        embedding[bad] = kept
    assert_same(tiny, request, outcome)
    assert drafts.num_branched_rows > 0


def test_no_more_paths_than_allowed() -> None:
    request = Request("a", PROMPT, SamplingParams(12, seed=3))
    drafts = several(lambda name, drawn, most: [(token, token) for token in range(9)])
    assert_same(model(), request, serve(make_engine(model(), speculation=drafts), [request])["a"])
    drafter = drafts.drafter
    assert isinstance(drafter, ScriptedDrafter)
    assert max(len(tree.starts) for report in drafter.reports for tree in report.trees_R) == MAX_PATHS - 1
