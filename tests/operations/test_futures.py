"""The table against a slow oracle: each future as a record of its times, judged anew at each look."""

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from plait.operations.call_order import PayloadConflict
from plait.operations.future_state import Expired, Failed, FailureCategory, Finished, FutureState, Pending, held_bytes
from plait.operations.futures import FutureCounts, FutureLimits, FutureTable, UnknownFuture

LIMITS = FutureLimits(pending_s=40, grace_s=10, retention_s=20, max_bytes=100)
request_ids = st.sampled_from(["a1", "a2", "a3", "a4", "b1", "b2"])
"""The first letter is the owner."""


@dataclass
class Known:
    kind: type[FutureState]
    since: float
    size: int = 0
    was_read: bool = False
    number: int = 0
    """Of the event that put it where it is: breaks ties of time."""


class FutureMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = FutureTable(LIMITS)
        self.known: dict[str, Known] = {}
        self.now = 0.0
        self.num_events = 0

    def _set(self, request_id: str, kind: type[FutureState], size: int = 0, was_read: bool = False) -> None:
        self.num_events += 1
        self.known[request_id] = Known(kind, self.now, size, was_read, self.num_events)

    def _held(self, tenant: str) -> list[str]:
        """Of a tenant's results, those to go first come first."""
        held = [i for i, k in self.known.items() if i[0] == tenant and k.kind in (Finished, Failed)]
        return sorted(held, key=lambda i: (not self.known[i].was_read, self.known[i].number))

    def _bound(self, tenant: str) -> None:
        while len(held := self._held(tenant)) > 1 and sum(self.known[i].size for i in held) > LIMITS.max_bytes:
            self._set(held[0], Expired)

    @rule(request_id=request_ids)
    def add(self, request_id: str) -> None:
        is_new = request_id not in self.known or self.known[request_id].kind is Expired
        assert self.table.add(request_id, request_id[0], self.now) == is_new
        if is_new:
            self._set(request_id, Pending)

    @rule(request_id=request_ids, size=st.integers(0, 120))
    def finish(self, request_id: str, size: int) -> None:
        pends = request_id in self.known and self.known[request_id].kind is Pending
        assert self.table.finish(request_id, b"x" * size, "json", self.now) == pends
        if pends:
            self._set(request_id, Finished, size)
            self._bound(request_id[0])

    @rule(request_id=request_ids, size=st.integers(1, 60))
    def fail(self, request_id: str, size: int) -> None:
        pends = request_id in self.known and self.known[request_id].kind is Pending
        assert self.table.fail(request_id, "x" * size, FailureCategory.USER, self.now) == pends
        if pends:
            self._set(request_id, Failed, size)
            self._bound(request_id[0])

    @rule(request_id=request_ids)
    def lose(self, request_id: str) -> None:
        pends = request_id in self.known and self.known[request_id].kind is Pending
        assert self.table.expire(request_id, "engine lost", self.now) == pends
        if pends:
            self._set(request_id, Expired)

    @rule(request_id=request_ids)
    def retrieve(self, request_id: str) -> None:
        if request_id not in self.known:
            with pytest.raises(UnknownFuture):
                self.table.retrieve(request_id, request_id[0], self.now)
            return
        known = self.known[request_id]
        state = self.table.retrieve(request_id, request_id[0], self.now)
        assert (type(state), held_bytes(state)) == (known.kind, known.size)
        if known.kind in (Finished, Failed):
            self._set(request_id, known.kind, known.size, was_read=True)

    @rule(seconds=st.sampled_from([1.0, 5.0, 10.0, 25.0]))
    def sweep(self, seconds: float) -> None:
        self.now += seconds
        late = [i for i, k in self.known.items() if k.kind is Pending and k.since + LIMITS.pending_s <= self.now]
        late.sort(key=lambda i: self.known[i].number)
        gone = [i for i, k in self.known.items() if k.kind is Expired and k.since + LIMITS.retention_s <= self.now]
        dropped = [i for i, k in self.known.items() if k.kind in (Finished, Failed) and self._is_over(k)]
        assert self.table.sweep(self.now) == late
        for request_id in gone:
            del self.known[request_id]
        for request_id in dropped:
            self._set(request_id, Expired)
        for request_id in late:
            self._set(request_id, Failed, len("no result within 40 s: send it again"))
            self._bound(request_id[0])

    def _is_over(self, known: Known) -> bool:
        return known.since + (LIMITS.grace_s if known.was_read else LIMITS.retention_s) <= self.now

    @invariant()
    def everyone_sees_their_own(self) -> None:
        assert len(self.table) == len(self.known)
        for request_id, known in self.known.items():
            assert type(self.table.state(request_id, request_id[0])) is known.kind
            with pytest.raises(UnknownFuture):
                self.table.state(request_id, "other")

    @invariant()
    def counts_agree(self) -> None:
        for tenant in "ab":
            held = self._held(tenant)
            num_pending = sum(k.kind is Pending for i, k in self.known.items() if i[0] == tenant)
            num_bytes = sum(self.known[i].size for i in held)
            assert self.table.counts(tenant) == FutureCounts(num_pending, len(held), num_bytes)
            assert num_bytes <= LIMITS.max_bytes or len(held) == 1


TestFutures = FutureMachine.TestCase


def test_an_answer_lost_on_the_way_can_be_asked_for_again() -> None:
    table = FutureTable(LIMITS)
    table.add("r", "ada", 0)
    table.finish("r", b"tokens", "proto", 1)
    for now in (2, 9, 18):
        table.sweep(now)
        assert table.retrieve("r", "ada", now) == Finished(b"tokens", "proto")
    table.sweep(28)
    assert table.retrieve("r", "ada", 28) == Expired("the result was retrieved before")


def test_a_future_that_never_ends_fails_and_its_late_result_is_refused() -> None:
    table = FutureTable(LIMITS)
    table.add("r", "ada", 0)
    assert table.sweep(39) == []
    assert table.sweep(40) == ["r"]
    state = table.retrieve("r", "ada", 40)
    assert isinstance(state, Failed)
    assert "within 40 s" in state.error
    assert state.category == FailureCategory.SERVER
    assert not table.finish("r", b"late", "proto", 41)


def test_looking_does_not_start_the_grace_time() -> None:
    table = FutureTable(LIMITS)
    table.add("r", "ada", 0)
    table.finish("r", b"tokens", "proto", 0)
    assert table.state("r", "ada") == Finished(b"tokens", "proto")
    table.sweep(15)
    assert table.state("r", "ada") == Finished(b"tokens", "proto")


def test_one_tenants_bytes_never_cost_another_his_results() -> None:
    table = FutureTable(LIMITS)
    table.add("mine", "bob", 0)
    table.finish("mine", b"x" * 90, "proto", 0)
    for number in range(50):
        table.add(f"r{number}", "ada", 0)
        table.finish(f"r{number}", b"x" * 30, "proto", 0)
    assert table.counts("ada") == FutureCounts(0, 3, 90)
    assert isinstance(table.state("mine", "bob"), Finished)


def test_an_id_of_another_tenant_is_not_taken_over() -> None:
    table = FutureTable(LIMITS)
    table.add("r", "ada", 0)
    table.expire("r", "lost", 0)
    with pytest.raises(UnknownFuture, match="no request 'r'"):
        table.add("r", "bob", 0)
    assert table.add("r", "ada", 0)


def test_nothing_is_kept_of_a_tenant_whose_futures_are_over() -> None:
    table = FutureTable(LIMITS)
    table.add("r", "ada", 0)
    table.finish("r", b"tokens", "proto", 0)
    table.sweep(20)
    table.sweep(40)
    assert len(table) == 0
    assert table._tenants == {}


@pytest.mark.parametrize("end", ["pending", "finish", "expire"])
def test_another_payload_is_refused_as_long_as_the_first_is_remembered(end: str) -> None:
    table = FutureTable(LIMITS)
    table.add("r", "ada", 0, "digest")
    if end == "finish":
        table.finish("r", b"tokens", "proto", 0)
    elif end == "expire":
        table.expire("r", "lost", 0)
    with pytest.raises(PayloadConflict, match="'r' has arrived before with another payload"):
        table.add("r", "ada", 0, "other")
    assert table.add("r", "ada", 0, "digest") == (end == "expire")
    with pytest.raises(UnknownFuture):
        table.check_payload("r", "bob", "other")
    for now in (40, 80, 120, 160):
        table.sweep(now)
    assert table.add("r", "ada", 160, "other")
