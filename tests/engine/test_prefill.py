"""Which prompt tokens are computed next."""

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from plait.engine.attention import Span
from plait.engine.prefill import plan_prefill
from plait.engine.row import Row
from plait.engine.stops import StopRule
from plait.models.decoder import Decoder
from plait.types.sampling import SamplingParams
from tests.engine.tiny import Request

PARAMS = SamplingParams(4)


def row(number: int, length: int, num_computed: int = 0, context: int = 0, task: str = "base") -> Row:
    chunk = Request(str(number), (context,) * length, PARAMS, task).chunk()
    tokens = list(chunk.context_tokens)
    return Row(
        number, chunk, cast(Decoder, None), None, task.encode(), StopRule(PARAMS, (), 100, None), length + 4, tokens, num_computed
    )


def test_first_come_first_served_up_to_the_limit() -> None:
    rows = [row(2, 9, context=1), row(0, 11, 4, context=2), row(1, 5, 4, context=3), row(3, 30, context=4)]
    plan = plan_prefill(rows, 10)
    assert plan.spans == (Span(1, 4, 6), Span(0, 0, 4))
    assert plan.num_tokens == 10
    assert plan_prefill(rows, 14).spans == (Span(1, 4, 6), Span(0, 0, 8)), "the last token is left to the decode step"


def test_one_context_is_computed_once() -> None:
    rows = [row(0, 20), row(1, 20, 16), row(2, 20, task="t0"), row(3, 21), row(4, 20)]
    plan = plan_prefill(rows, 100)
    assert {span.row for span in plan.spans} == {0, 2, 3}
    assert plan.followers == ((1, 0), (4, 0))


def test_followers_wait_for_a_leader_that_waits_itself() -> None:
    plan = plan_prefill([row(0, 20, context=1), row(1, 20, context=2), row(2, 20, context=2)], 5)
    assert plan.spans == (Span(0, 0, 5),)
    assert plan.followers == ((2, 1),)


def test_tokens_of_one_adapter_lie_side_by_side() -> None:
    plan = plan_prefill([row(0, 5, context=0, task="t1"), row(1, 5, context=1, task="t0"), row(2, 5, context=2, task="t1")], 100)
    assert [span.row for span in plan.spans] == [1, 0, 2]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 39), st.integers(0, 2)), max_size=8),
    st.integers(1, 60),
)
def test_every_row_gets_there(shapes: list[tuple[int, int, int]], max_tokens: int) -> None:
    rows = [row(i, length, min(done, length - 1), context) for i, (length, done, context) in enumerate(shapes)]
    for _ in range(400):
        plan = plan_prefill(rows, max_tokens)
        assert plan.num_tokens <= max_tokens
        if not plan.spans:
            break
        for span in plan.spans:
            assert rows[span.row].num_computed == span.start
            rows[span.row].num_computed = span.end
        for follower, leader in plan.followers:
            if rows[leader].is_ready:
                rows[follower].num_computed = rows[leader].num_computed
    assert all(row.is_ready for row in rows)
