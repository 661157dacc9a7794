"""Drafts from real siblings, with the planner that decides: the same tokens, in fewer steps."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import msgspec
import pytest

from plait.drafting.draft import DraftIncrement
from plait.drafting.draft_tree import MAX_PATHS, NO_TREE, DraftTree
from plait.drafting.local_drafter import LocalDrafter
from plait.drafting.planner import DraftPlanner
from plait.drafting.prompt_history import PromptHistory
from plait.engine.engine import Engine
from plait.engine.group_drafter import GroupDrafter
from plait.engine.speculation import MAX_DRAFT_TOKENS, TAIL_ROWS, DraftWish, Speculation, StepReport
from plait.types.chunks import Chunk
from plait.types.sampling import SamplingParams
from tests.engine.tiny import Driver, Request, assert_same, expected, make_engine, model

CHEAP = {(rows, width): 1 + 0.001 * rows * width for rows in (1, 16) for width in (1, 9)}
"""Verification that costs next to nothing."""
DEAR = {(rows, width): float(rows * width) for rows in (1, 16) for width in (1, 9)}
PROMPT = tuple(range(3, 40))


class Constant:
    """A clock whose every interval is short."""

    def __init__(self) -> None:
        self.ticks = count()

    def __call__(self) -> float:
        return next(self.ticks) * 1e-6


def drafter(profile: dict[tuple[int, int], float], update_tokens: int = 64) -> GroupDrafter:
    return GroupDrafter(LocalDrafter(), DraftPlanner(profile), update_tokens)


def engine_with(found: GroupDrafter) -> Engine:
    return make_engine(model(), speculation=Speculation(found, Constant()))


class GroupDriver(Driver):
    """Requests of one task with one prompt are a group."""

    def submit(self, *requests: Request) -> None:
        self.expect(*requests)
        for request in requests:
            self.engine.submit(grouped(request, request.chunk(budget=self.budget)))


def grouped(request: Request, chunk: Chunk) -> Chunk:
    return msgspec.structs.replace(chunk, group=f"{request.task}/{hash(request.context)}")


def siblings(task: str, num: int, **params: object) -> list[Request]:
    return [Request(f"{task}/{i}", PROMPT, SamplingParams(40, seed=i, **params), task) for i in range(num)]  # type: ignore[arg-type]


def test_siblings_that_say_the_same_are_drafted() -> None:
    """Greedy siblings, one after the other: the second is told by the first."""
    found = drafter(CHEAP)
    engine = engine_with(found)
    for request in siblings("t0", 2, temperature=0.0):
        driver = GroupDriver(engine)
        driver.submit(request)
        assert_same(model(), request, driver.run()[request.request_id])
    assert engine.speculation is not None
    assert engine.speculation.num_accepted > 20
    assert engine.speculation.num_verify_steps < engine.speculation.num_steps < 80 - 20


@pytest.mark.parametrize("profile", [CHEAP, DEAR])
def test_groups_of_several_tasks_together(profile: dict[tuple[int, int], float]) -> None:
    requests = [
        *siblings("t0", 4, temperature=0.0),
        *siblings("t1", 3, temperature=0.3, top_k=4),
        *siblings("base", 2, stop_strings=("a",)),
    ]
    engine = make_engine(model(), decode=model().tokenizer.decode, speculation=Speculation(drafter(profile), Constant()))
    driver = GroupDriver(engine, budget=11)
    driver.submit(*requests)
    outcomes = driver.run()
    for request in requests:
        assert_same(model(), request, outcomes[request.request_id])
    assert engine.speculation is not None
    assert engine.speculation.num_accepted > 0 or profile is DEAR


def test_tokens_go_to_siblings_elsewhere() -> None:
    """One engine's tokens, taken in by another before it starts: its drafts are right from the first token on."""
    here, there = drafter(CHEAP, update_tokens=8), drafter(CHEAP)
    first, second = siblings("t0", 2, temperature=0.0)
    sent: list[DraftIncrement] = []
    driver = GroupDriver(engine_with(here))
    driver.submit(first)
    while not driver.engine.is_idle:
        driver.step()
        sent += here.updates()
    tokens = expected(model(), first)[0]
    assert tuple(token for piece in sent for token in piece.tokens) == tokens
    assert len(sent) > 2
    assert here.updates() == []

    other = GroupDriver(engine_with(there))
    other.submit(second)
    there.take_in(sent)
    assert_same(model(), second, other.run()[second.request_id])
    assert other.engine.speculation is not None
    assert other.engine.speculation.num_accepted > 25


def test_one_that_is_alone_drafts_from_itself_and_tells_nobody() -> None:
    found = drafter(CHEAP, update_tokens=1)
    alone = replace(siblings("t0", 1)[0], request_id="a")
    engine = engine_with(found)
    driver = Driver(engine, budget=15)
    driver.submit(alone)
    assert_same(model(), alone, driver.run()["a"])
    assert found.updates() == []
    assert found.local.groups == ()


def test_drafts_follow_what_was_drawn() -> None:
    found = drafter(CHEAP)
    found.follow("g", (1, 2, 3))
    found.start("g", "a", (1, 2, 3), ())
    found.drawn("a", (7, 8, 9, 10, 11))
    found.start("g", "b", (1, 2, 3), (7, 8))
    wishes = [DraftWish("a", 8), DraftWish("b", 2)]
    assert not found.wants_drafts(2, False), "no step has been measured yet"
    found.measured(StepReport(("a", "b"), (NO_TREE, NO_TREE), ((11,), (8,)), 1e-5, 1.0))
    assert found.wants_drafts(2, False)
    drafts = found.draft(wishes)
    assert drafts[1].tokens == (9, 10)
    found.measured(StepReport(("a", "b"), tuple(drafts), ((1,), (9, 10, 11)), 1e-5, 1.0))
    found.end("a")
    found.end("b")
    assert {piece.request: piece.tokens for piece in found.updates()} == {"a": (7, 8, 9, 10, 11), "b": (7, 8)}
    found.end_group("g")
    assert found.local.groups == ()


def test_the_last_rows_are_the_tail() -> None:
    """Few rows that draw are no tail while others wait for room."""
    told: list[tuple[int, bool]] = []

    class Listening(GroupDrafter):
        def wants_drafts(self, num_rows: int, is_tail: bool) -> bool:
            told.append((num_rows, is_tail))
            return super().wants_drafts(num_rows, is_tail)

        def draft(self, wishes: Sequence[DraftWish]) -> list[DraftTree]:
            assert {wish.is_tail for wish in wishes} == {told[-1][1]}
            assert {wish.max_paths for wish in wishes} == {MAX_PATHS if told[-1][1] else 1}
            return super().draft(wishes)

    found = Listening(LocalDrafter(), DraftPlanner(CHEAP))
    engine = make_engine(model(), max_rows=TAIL_ROWS + 2, speculation=Speculation(found, Constant()))
    driver = GroupDriver(engine)
    driver.submit(*siblings("t0", TAIL_ROWS + 2, temperature=0.0))
    driver.run()
    assert told[0] == (TAIL_ROWS + 2, False)
    small = make_engine(model(), max_rows=2, speculation=Speculation(found, Constant()))
    told.clear()
    driver = GroupDriver(small)
    driver.submit(*siblings("t1", 3, temperature=0.0))
    driver.run()
    assert told[0] == (2, False)
    assert told[-1][1]
    observed = found.planner.acceptance.rate(0, is_tail=True)
    assert observed > found.planner.acceptance.rate(MAX_DRAFT_TOKENS - 1) == 0.5


def test_a_later_step_drafts_from_the_answers_of_the_one_before() -> None:
    """From its first token on, and the same tokens are drawn; another task has nothing of it."""
    found = GroupDrafter(LocalDrafter(), DraftPlanner(CHEAP), history=PromptHistory())
    engine = engine_with(found)
    told = engine.speculation
    assert told is not None
    gains: list[float] = []
    for step, task in enumerate(("t0", "t0", "t1")):
        wanted = siblings(task, 1, temperature=0.0)
        num_drawn, num_rows = told.num_drawn, told.num_rows
        driver = GroupDriver(engine)
        driver.submit(*wanted)
        results = driver.run()
        assert_same(model(), wanted[0], results[wanted[0].request_id])
        gains.append((told.num_drawn - num_drawn) / (told.num_rows - num_rows))
        found.end_group(found.local.groups[0])
        assert found.local.groups == (), step
    assert gains[1] > 1.5 * max(gains[0], gains[2])
    assert found.history is not None
    assert found.history.num_tokens == 3 * 40
