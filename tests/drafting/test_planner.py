"""Drafting turns itself off and on, and loses no more than its ledger allows, whatever is accepted."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.drafting.draft import Draft
from plait.drafting.draft_tree import NO_TREE, DraftTree, merged
from plait.drafting.loss_ledger import CREDIT_STEPS, OPENING_STEPS, LossLedger
from plait.drafting.planner import MAX_INTERVAL, PATHS_INTERVAL, REFERENCE_INTERVAL, DraftPlanner, Step
from plait.drafting.target_time import SEVERAL_PATHS, TargetTime

CHEAP = {(rows, width): 0.020 + 0.0002 * rows * width for rows in (1, 4, 16) for width in (1, 3, 9)}
GOOD = merged([Draft((1, 2, 3, 4), (0.9, 0.8, 0.75, 0.7))])
ROWS = 4


class Engine:
    """Runs steps as the model says and counts what drafting cost and saved."""

    slower = 1.0
    """Than the machine was when the profile was made."""

    def __init__(self, draft_s: float = 8e-5, dearer: float = 1.0) -> None:
        self.planner, self.draft_s = DraftPlanner(CHEAP), draft_s
        self.true_times, self.dearer = TargetTime(CHEAP), dearer
        self.plain_s = self.planner.times.seconds(ROWS, ROWS)
        self.lost_s = self.total_s = 0.0
        self.names = [str(row) for row in range(ROWS)]
        for name in self.names:
            self.planner.saved.start(name)

    def step(self, accepted: list[int], draft: DraftTree = GOOD) -> int:
        """Return the number of draft tokens verified; of each row's at most `accepted` are right."""
        self.total_s += self.plain_s
        if not self.planner.wants_drafts(ROWS):
            self.planner.observe(ROWS, self.plain_s * self.slower)
            return 0
        drafts = [draft] * ROWS
        plan = self.planner.plan(drafts)
        right = [min(num, most) for num, most in zip(plan.draft_tokens, accepted, strict=True)]
        true = [(*draft.tokens[:most], 99) for most in accepted]
        drawn = [tokens[: num + 1] for tokens, num in zip(true, right, strict=True)]
        seconds = self.true_times.seconds(ROWS, ROWS + plan.num_draft_tokens) * (self.dearer if plan.num_draft_tokens else 1.0)
        self.planner.observe(ROWS, seconds * self.slower, Step(plan, drafts, [False] * ROWS, self.names, drawn), self.draft_s)
        self.lost_s += seconds - self.plain_s + self.draft_s - sum(right) * self.plain_s / ROWS
        return plan.num_draft_tokens


@given(st.lists(st.sampled_from([[0] * 4, [4] * 4, [0, 1, 2, 3], [4, 0, 0, 0]]), max_size=12), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_the_loss_is_bounded_whatever_is_accepted(phases: list[list[int]], num_steps: int) -> None:
    engine = Engine()
    for accepted in phases:
        for _ in range(num_steps):
            engine.step(accepted)
            assert engine.lost_s <= 0.01 * engine.total_s + OPENING_STEPS * engine.plain_s + engine.draft_s


@given(st.sampled_from([[0] * 4, [1, 0, 0, 0], [0, 1, 2, 3]]), st.floats(1.0, 1.9))
@settings(max_examples=20, deadline=None)
def test_the_loss_is_that_which_is_measured(accepted: list[int], dearer: float) -> None:
    """Verifying takes longer than the profile says: beyond what is allowed, no more is lost than by the step that shows it."""
    engine = Engine(dearer=dearer)
    for _ in range(600):
        engine.step(accepted)
        most_s = engine.planner.times.seconds(ROWS, 9 * ROWS) * dearer
        opening_s = OPENING_STEPS * engine.planner.times.seconds(ROWS, ROWS)
        assert engine.lost_s <= 0.012 * engine.total_s + opening_s + most_s


def test_drafts_that_are_always_wrong_cost_less_than_one_percent() -> None:
    engine = Engine()
    verified = [engine.step([0] * 4) for _ in range(3000)]
    assert not engine.planner.is_on
    assert engine.lost_s < 0.01 * engine.total_s
    assert 0 < sum(num > 0 for num in verified[1000:]) <= 2000 / MAX_INTERVAL + 1


def test_a_short_run_of_wrong_drafts_loses_little_too() -> None:
    engine = Engine()
    for _ in range(32):
        engine.step([0] * 4)
    assert engine.lost_s < 0.03 * engine.total_s


def test_drafting_turns_on_again_when_it_pays() -> None:
    engine = Engine()
    for _ in range(1500):
        engine.step([0] * 4)
    assert not engine.planner.is_on
    verified = [engine.step([4] * 4) for _ in range(1500)]
    assert engine.planner.is_on
    assert verified[-40:].count(16) >= 35
    assert engine.lost_s < -0.5 * engine.total_s


def test_drafts_that_take_longer_than_the_profile_says_are_given_up() -> None:
    """Half of the tokens hold, and would pay by the profile."""
    engine = Engine(dearer=4.0)
    verified = [engine.step([2, 2, 2, 2]) for _ in range(2000)]
    assert not engine.planner.is_on
    assert sum(num > 0 for num in verified[200:]) <= 1800 / MAX_INTERVAL + 5
    assert engine.lost_s < 0.01 * engine.total_s + 8 * engine.plain_s


def test_a_slower_machine_does_not_turn_drafts_off() -> None:
    """All takes three times as long from now on: steps without drafts tell, which come in between."""
    engine = Engine()
    for _ in range(100):
        engine.step([4] * 4)
    engine.slower = 3.0
    verified = [engine.step([4] * 4) for _ in range(400)]
    assert engine.planner.is_on
    assert sum(num > 0 for num in verified[-100:]) >= 90
    assert verified.count(0) >= 400 // (REFERENCE_INTERVAL + 1)
    assert engine.planner.times.seconds(ROWS, ROWS) == pytest.approx(3 * engine.plain_s, rel=0.1)


def test_credit_of_one_row_is_not_spent_on_many() -> None:
    """After drafts that paid, ones that never do lose little more than two steps."""
    engine = Engine(dearer=1.5)
    for _ in range(200):
        engine.step([4] * 4)
    before_s = engine.lost_s
    for _ in range(30):
        engine.step([0] * 4)
    assert engine.lost_s - before_s < (CREDIT_STEPS + 1.5) * engine.plain_s


def test_nothing_to_draft_from_at_first_does_not_delay_the_first_draft() -> None:
    engine = Engine()
    for _ in range(300):
        assert engine.step([0] * 4, NO_TREE) == 0
    assert any(engine.step([4] * 4) for _ in range(10))


def test_drafting_that_takes_long_is_done_rarely() -> None:
    engine = Engine(draft_s=0.004)
    for _ in range(3000):
        engine.step([0] * 4, NO_TREE)
    assert engine.lost_s < 0.01 * engine.total_s


def test_the_model_learns_from_what_is_verified() -> None:
    engine, random = Engine(), Random(1)
    for _ in range(400):
        engine.step([next((i for i in range(4) if random.random() > 0.6), 4) for _ in range(ROWS)])
    assert abs(engine.planner.acceptance.rate(0) - 0.6) < 0.15


FORK = merged([Draft((1, 2), (0.5, 0.4)), Draft((3, 4), (0.45, 0.4))])


class Tail:
    """One row left, and a tree of two paths: the answer goes along the first, the second or neither."""

    def __init__(self, paths_s: float) -> None:
        profile = {(1, width): 0.020 + 0.0002 * width for width in (1, 4, 9)}
        self.planner = DraftPlanner(profile | {(1, SEVERAL_PATHS): paths_s})
        self.planner.saved.start("a")
        self.times = TargetTime(profile | {(1, SEVERAL_PATHS): paths_s})

    def step(self, answer: tuple[int, ...]) -> tuple[int, ...] | None:
        """The nodes that are verified; None if no second path was asked for."""
        if not self.planner.wants_drafts(1, is_tail=True):
            self.planner.observe(1, self.times.seconds(1, 1))
            return None
        tree = FORK if self.planner.num_paths > 1 else FORK.pick([0, 1])
        plan = self.planner.plan([tree], [True])
        nodes = tree.pick(plan.nodes[0]).follow(answer)
        drawn = answer[: len(nodes) + 1]
        seconds = self.times.seconds(1, 1 + plan.num_draft_tokens) * (self.times.paths_factor(1) if plan.has_paths else 1.0)
        self.planner.observe(1, seconds, Step(plan, [tree], [True], ["a"], [drawn]), 2e-5)
        return plan.nodes[0] if tree is FORK else None


def test_a_second_path_is_verified_while_it_pays() -> None:
    tail = Tail(paths_s=0.0215)
    verified = [tail.step((1, 2, 9) if step % 2 else (3, 4, 9)) for step in range(200)]
    assert verified[-1] == (0, 1, 2, 3)
    verified = [tail.step((1, 2, 9)) for _ in range(800)]
    assert tail.planner.acceptance.other_rate(1, is_tail=True) < 0.15
    assert verified[-PATHS_INTERVAL:].count(None) == PATHS_INTERVAL - 1, "the second never holds, and is looked at now and then"
    verified = [tail.step((3, 4, 9)) for _ in range(600)]
    assert verified[-1] is not None
    assert verified[-1][:2] == (2, 3) or verified[-1] == (0, 1, 2, 3), "measured without being verified, until it pays again"


def test_a_second_path_that_is_dear_is_not_verified() -> None:
    tail = Tail(paths_s=0.060)
    assert not any(set(nodes or ()) & {2, 3} for nodes in (tail.step((1, 2, 9) if step % 2 else (3, 4, 9)) for step in range(200)))


@given(st.lists(st.floats(0, 0.2), max_size=50), st.lists(st.floats(0, 0.2), min_size=50, max_size=50))
def test_who_spends_what_is_there_loses_no_more_than_the_share(wanted: list[float], saved: list[float]) -> None:
    ledger, lost = LossLedger(0.01), 0.0
    for step, (extra, gain) in enumerate(zip(wanted, saved, strict=False), 1):
        spent = min(extra, ledger.balance_s)
        lost += spent - gain
        ledger.book(0.1, spent, gain)
        assert lost <= 0.01 * 0.1 * step + OPENING_STEPS * 0.1 + 1e-9
