"""A chunk that stretches draws what chunks of its budget would, however far it comes."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from plait.types.chunks import ChunkResult
from plait.types.sampling import SamplingParams, StopReason
from tests.engine.tiny import Driver, Request, expected, make_engine, model

BUDGET = 4


def requests(number: int) -> list[Request]:
    return [Request(str(i), (1 + i, 2, 3), SamplingParams(30, seed=i), f"t{i % 2}") for i in range(number)]


class StretchingDriver(Driver):
    """Every chunk stretches; told to end at random."""

    def __init__(self, seed: int, **sizes: Any) -> None:
        super().__init__(make_engine(model(), **sizes), BUDGET)
        self.random = random.Random(seed)
        submit = self.engine.submit
        self.engine.submit = lambda chunk: submit(replace(chunk, stretch_tokens=self.random.choice((0, 7, 100))))  # type: ignore[method-assign]

    def step(self) -> None:
        if self.random.random() < 0.15:
            self.engine.end_stretches()
        super().step()


@pytest.mark.parametrize("seed", range(3))
def test_tokens_are_those_of_the_reference_wherever_stretches_end(seed: int) -> None:
    driver, asked = StretchingDriver(seed), requests(6)
    driver.submit(*asked)
    for request_id, outcome in driver.run().items():
        tokens, logprobs, stop = expected(model(), asked[int(request_id)])
        assert (outcome.tokens, outcome.logprobs, outcome.stop) == (tokens, logprobs, stop)


def test_untold_it_goes_on_to_the_end_and_told_it_ends_with_the_next_token() -> None:
    engine, (one,) = make_engine(model()), requests(1)
    engine.submit(replace(one.chunk(budget=BUDGET), stretch_tokens=100))
    for _ in range(10):
        assert engine.step() == []
    engine.end_stretches()
    (result,) = engine.step()
    assert (len(result.tokens), result.stop) == (11, StopReason.BUDGET)


def test_who_finds_no_slot_ends_the_stretches_of_others() -> None:
    engine, (first, second) = make_engine(model(), max_rows=1), requests(2)
    engine.submit(replace(first.chunk(budget=BUDGET), stretch_tokens=100))
    engine.step()
    engine.submit(second.chunk(budget=BUDGET))
    ended: list[ChunkResult] = []
    while not ended:
        ended += engine.step()
    assert (ended[0].request_id, len(ended[0].tokens)) == (first.request_id, BUDGET)


def test_a_stretch_that_fits_no_slot_is_cut_to_what_fits() -> None:
    engine = make_engine(model(), slot_tokens=128, max_rows=1)
    long = Request("long", (1, 2, 3), SamplingParams(200, seed=1))
    engine.submit(replace(long.chunk(budget=BUDGET), stretch_tokens=190))
    ended: list[ChunkResult] = []
    while not ended:
        ended += engine.step()
    assert (len(ended[0].tokens), ended[0].stop) == (125, StopReason.BUDGET)
