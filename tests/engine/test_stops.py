"""Generations end where they should, wherever tokens and chunks are cut."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plait.engine.stops import StopRule
from plait.types.sampling import SamplingParams, StopReason

PIECES = ("", "a", "b", "ab", "ba", " ", "é", "aab", "\n", "")
"""Two tokens have no text."""


def decode(tokens: object) -> str:
    return "".join(PIECES[token] for token in tokens)  # type: ignore[attr-defined]


def test_order_of_reasons() -> None:
    params = SamplingParams(1, stop_token_ids=(1,), stop_strings=("b",))
    assert StopRule(params, (), 10, decode).after(1, 10) == StopReason.STOP_TOKEN
    assert StopRule(params, (), 10, decode).after(2, 10) == StopReason.STOP_STRING
    assert StopRule(params, (), 10, decode).after(5, 10) == StopReason.LENGTH
    assert StopRule(SamplingParams(2), (), 10, None).after(5, 10) == StopReason.CONTEXT
    assert StopRule(SamplingParams(2), (), 10, None).after(5, 9) is None


def test_tokens_of_earlier_chunks_count() -> None:
    assert StopRule(SamplingParams(3), (5, 5), 10, None).after(5, 6) == StopReason.LENGTH
    assert StopRule(SamplingParams(4), (5, 5), 10, None).after(5, 6) is None


@given(
    st.lists(st.sampled_from([1, 2, 1, 2, 3, 4, 0, 5, 6, 8, 9]), min_size=1, max_size=30),
    st.lists(st.sampled_from(["ab", "b a", "aaba", "é\n", "ba" * 6]), min_size=1, max_size=3),
    st.sets(st.integers(1, 29)),
)
@example([1, 9, 2], ["ab"], {1, 2})
@example([2, 1] * 6, ["ba" * 6], set(range(12)))
def test_stop_strings_against_the_whole_text(tokens: list[int], stops: list[str], cuts: set[int]) -> None:
    """The oracle decodes everything drawn so far, every time; the rule is made anew at every cut."""
    params = SamplingParams(100, stop_strings=tuple(stops))
    rule = StopRule(params, (), 1000, decode)
    for index, token in enumerate(tokens):
        if index in cuts:
            rule = StopRule(params, tokens[:index], 1000, decode)
        is_over = any(stop in decode(tokens[: index + 1]) for stop in stops)
        assert (rule.after(token, index + 1) == StopReason.STOP_STRING) == is_over
        if is_over:
            return


def test_stop_strings_need_a_tokenizer() -> None:
    with pytest.raises(ValueError, match="tokenizer"):
        StopRule(SamplingParams(5, stop_strings=("x",)), (), 10, None).after(1, 2)
