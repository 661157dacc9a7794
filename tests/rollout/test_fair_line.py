"""The line against a slow oracle, and its promises told from what was charged alone."""

import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.rollout.fair_line import FairLine
from plait.types.errors import ConfigError

WEIGHTS = {"ada": 1.0, "bob": 2.0, "cy": 0.5}
"""Powers of two: virtual times are exact."""
MAX_COST = 8
costs = st.integers(1, MAX_COST)
turn_costs = st.sampled_from([0, 5, 20])


def weighted(turn_cost: float) -> FairLine:
    line = FairLine(turn_cost)
    for name, weight in WEIGHTS.items():
        line.set_weight(name, weight)
    return line


class Oracle:
    """As in the paper, with turns and refunds: every name is looked at each time."""

    def __init__(self, turn_cost: int) -> None:
        self.turn_cost = turn_cost
        self.served = dict.fromkeys(WEIGHTS, Fraction(0))
        self.waiting: dict[str, int] = {}
        """name -> number of lining up."""
        self.number, self.holder = 0, ""
        self.virtual_time = self.latest = self.turn_left = Fraction(0)

    def line_up(self, name: str) -> None:
        self.number += 1
        self.waiting[name] = self.number

    def enter(self, name: str) -> None:
        if name not in self.waiting:
            self.served[name] = max(self.virtual_time, self.served[name])
            self.line_up(name)

    def leave(self, name: str) -> None:
        self.waiting.pop(name, None)
        self.holder = "" if self.holder == name else self.holder
        self.virtual_time = self.virtual_time if self.waiting else self.latest

    def first(self) -> str | None:
        return self.holder or min(self.waiting, key=lambda n: (self.served[n], self.waiting[n]), default=None)

    def charge(self, name: str, cost: int) -> None:
        if name == self.first():
            if name != self.holder:
                self.virtual_time = max(self.virtual_time, self.served[name])
            left = (self.turn_left if name == self.holder else self.turn_cost) - cost
            self.holder, self.turn_left = (name, Fraction(left)) if left > 0 else ("", Fraction(0))
        self.served[name] += cost / Fraction(WEIGHTS[name])
        self.latest = max(self.latest, self.served[name])
        self.line_up(name)

    def refund(self, name: str, cost: int) -> None:
        self.served[name] -= cost / Fraction(WEIGHTS[name])
        if name in self.waiting:
            self.line_up(name)


events = st.tuples(st.sampled_from(["enter", "leave", "first", "charge", "refund"]), st.sampled_from(sorted(WEIGHTS)), costs)


@given(turn_cost=turn_costs, sequence=st.lists(events, max_size=60))
def test_it_is_start_time_fair_queueing(turn_cost: int, sequence: list[tuple[str, str, int]]) -> None:
    line, oracle = weighted(turn_cost), Oracle(turn_cost)
    for kind, name, cost in sequence:
        for each in (line, oracle):
            if kind == "first" and (first := each.first()) is not None:
                each.charge(first, cost)
            elif kind == "charge" and name in oracle.waiting:
                each.charge(name, cost)
            elif kind == "refund":
                each.refund(name, cost)
            elif kind == "enter":
                each.enter(name)
            elif kind == "leave":
                each.leave(name)
        assert line.first() == oracle.first()
        assert len(line) == len(oracle.waiting)


class Ledger:
    """Serves a line; of each chunk that runs, a part may be refunded at its end."""

    def __init__(self, turn_cost: int) -> None:
        self.line = weighted(turn_cost)
        self.net = dict.fromkeys(WEIGHTS, 0)
        self.chunks: list[tuple[str, int]] = []
        self.most_running = dict.fromkeys(WEIGHTS, 0)

    def serve(self, cost: int) -> str:
        name = self.line.first()
        assert name is not None
        self.line.charge(name, cost)
        self.net[name] += cost
        self.chunks.append((name, cost))
        running = sum(each for owner, each in self.chunks if owner == name)
        self.most_running[name] = max(self.most_running[name], running)
        return name

    def end(self, which: int, share_used: float) -> None:
        if self.chunks:
            name, cost = self.chunks.pop(which % len(self.chunks))
            unused = cost - round(share_used * cost)
            self.line.refund(name, unused)
            self.net[name] -= unused

    def bound(self, name: str) -> int:
        return int(self.line.turn_cost) + MAX_COST + self.most_running[name]


steps = st.lists(st.tuples(st.sampled_from(["serve", "serve", "end", "enter", "leave"]), costs, st.floats(0, 1)), max_size=100)


@given(turn_cost=turn_costs, sequence=steps)
def test_those_that_wait_all_the_while_share_by_weight(turn_cost: int, sequence: list[tuple[str, int, float]]) -> None:
    """ada and bob wait all the while; cy comes and goes."""
    ledger = Ledger(turn_cost)
    ledger.line.enter("ada")
    ledger.line.enter("bob")
    ahead = [0.0]
    for kind, cost, share in sequence:
        if kind == "serve":
            ledger.serve(cost)
        elif kind == "end":
            ledger.end(cost, share)
        else:
            (ledger.line.enter if kind == "enter" else ledger.line.leave)("cy")
        ahead.append(ledger.net["ada"] / WEIGHTS["ada"] - ledger.net["bob"] / WEIGHTS["bob"])
    assert max(ahead) - min(ahead) <= sum(ledger.bound(name) / WEIGHTS[name] for name in ("ada", "bob"))


@given(turn_cost=turn_costs, before=steps, after=st.lists(st.tuples(costs, costs, st.floats(0, 1)), min_size=1))
def test_who_comes_to_wait_waits_for_a_bounded_amount_of_each_other(
    turn_cost: int, before: list[tuple[str, int, float]], after: list[tuple[int, int, float]]
) -> None:
    ledger = Ledger(turn_cost)
    ledger.line.enter("ada")
    ledger.line.enter("bob")
    for kind, cost, share in before:
        ledger.serve(cost) if kind == "serve" else ledger.end(cost, share)
    ledger.line.enter("cy")
    net_before = dict(ledger.net)
    for number in range(1000):
        cost, which, share = after[number % len(after)]
        if ledger.serve(cost) == "cy":
            break
        ledger.end(which, share)
        for name in ("ada", "bob"):
            assert ledger.net[name] - net_before[name] <= ledger.bound(name)
    else:
        assert all(share * cost < 1 for cost, _, share in after), "it starves, though others are served"


def test_shares_in_the_long_run() -> None:
    line = weighted(0)
    for name in WEIGHTS:
        line.enter(name)
    counts: Counter[str] = Counter()
    for _ in range(1400):
        first = line.first()
        assert first is not None
        line.charge(first, 3)
        counts[first] += 1
    assert counts == {name: pytest.approx(400 * weight, abs=2) for name, weight in WEIGHTS.items()}


def test_who_did_not_wait_saves_nothing_up() -> None:
    line = FairLine()
    line.enter("busy")
    for _ in range(50):
        line.charge("busy", 1)
    line.enter("idle")
    order = []
    for _ in range(6):
        order.append(line.first())
        line.charge(order[-1] or "", 1)
    assert order.count("idle") == 3


def test_a_turn_lasts_until_its_cost_is_used() -> None:
    line = FairLine(turn_cost=4)
    line.enter("a")
    line.enter("b")
    order = []
    for _ in range(8):
        order.append(line.first())
        line.charge(order[-1] or "", 2)
    assert "".join(name or "" for name in order) == "aabbaabb"


def test_who_is_gone_leaves_no_record() -> None:
    line = FairLine()
    for number in range(1000):
        line.enter(str(number))
        line.charge(str(number), 1)
        line.leave(str(number))
    assert len(line._served) < 100


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_a_weight_is_finite_and_above_0(weight: float) -> None:
    with pytest.raises(ConfigError, match=f"weight of 'ada' is {weight}"):
        FairLine().set_weight("ada", weight)
