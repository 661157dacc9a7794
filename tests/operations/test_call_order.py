"""The order of calls against a slow oracle: sets of what arrived, what was given and what ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from plait.operations import call_order
from plait.operations.call_order import CallOrder, PayloadConflict, SeqIdError

WINDOW = 4
REMEMBERED = 3


class CallOrderMachine(RuleBasedStateMachine):
    """Calls arrive in any order, again, and with other payloads; they end, the worker is lost, the server restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.order = CallOrder(window=WINDOW)
        self.arrived: dict[int, str] = {}
        self.given: list[int] = []
        """Without what a lost worker or a restart took back."""
        self.finished: list[int] = []

    @property
    def first_missing(self) -> int:
        return next(seq_id for seq_id in range(1, len(self.arrived) + 2) if seq_id not in self.arrived)

    @property
    def running(self) -> list[int]:
        return sorted(set(self.given) - set(self.finished))

    @rule(ahead=st.just(0) | st.integers(-5, WINDOW + 2), digest=st.sampled_from("xxxxy"))
    def submit(self, ahead: int, digest: str) -> None:
        seq_id = self.first_missing + ahead
        forgotten = seq_id < 1 or seq_id in self.finished[:-REMEMBERED]
        if forgotten or ahead > WINDOW:
            with pytest.raises(SeqIdError, match=f"seq_id {seq_id} "):
                self.order.submit(seq_id, digest)
        elif self.arrived.get(seq_id, digest) != digest:
            with pytest.raises(PayloadConflict, match=f"seq_id {seq_id} "):
                self.order.submit(seq_id, digest)
        else:
            assert self.order.submit(seq_id, digest).is_new == (seq_id not in self.arrived)
            self.arrived[seq_id] = digest

    @rule()
    def ready(self) -> None:
        expected = [seq_id for seq_id in range(1, self.first_missing) if seq_id not in self.given]
        assert self.order.ready() == expected
        self.given += expected

    @rule()
    def submit_the_missing(self) -> None:
        for seq_id in range(1, max(self.arrived, default=0) + 2):
            if seq_id not in self.arrived:
                assert self.order.submit(seq_id, "x").is_new
                self.arrived[seq_id] = "x"

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        seq_id = data.draw(st.sampled_from(self.running))
        self.order.finish(seq_id)
        self.finished.append(seq_id)
        with pytest.raises(KeyError):
            self.order.finish(seq_id)

    @rule()
    def lose_worker(self) -> None:
        self.order.requeue_running()
        self.given = list(self.finished)

    @rule(keep=st.integers(1, 4))
    def restart(self, keep: int) -> None:
        """The database may have let old calls go, but not the latest that ended."""
        done = sorted(self.finished)
        kept = {seq_id: self.arrived[seq_id] for seq_id in done[-keep:]}
        pending = {seq_id: digest for seq_id, digest in self.arrived.items() if seq_id not in done}
        self.order = CallOrder.reopen(kept, pending, window=WINDOW)
        self.given, self.finished = list(done), done
        for seq_id in done[:-keep]:
            with pytest.raises(SeqIdError):
                self.order.submit(seq_id, "x")
        self.order = CallOrder.reopen({seq_id: self.arrived[seq_id] for seq_id in done}, pending, window=WINDOW)

    @invariant()
    def counts_agree(self) -> None:
        assert self.order.next_seq_id == self.first_missing
        assert self.order.num_unfinished == len(self.arrived) - len(self.finished)
        assert len(self.order._digests) <= self.order.num_unfinished + REMEMBERED, "finished calls pile up"


@pytest.fixture(autouse=True)
def few_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_order, "REMEMBERED_CALLS", REMEMBERED)


TestCallOrder = CallOrderMachine.TestCase


@given(st.permutations(range(1, 8)))
def test_whatever_the_order_of_arrival_calls_are_given_in_theirs(arrivals: list[int]) -> None:
    order = CallOrder()
    given_ids: list[int] = []
    for seq_id in arrivals:
        assert order.submit(seq_id, str(seq_id)).is_new
        given_ids += order.ready()
    assert given_ids == list(range(1, 8))


def test_the_first_chunk_comes_last() -> None:
    order = CallOrder()
    for seq_id in (2, 3, 4):
        order.submit(seq_id, "chunk")
        assert order.ready() == []
    order.submit(1, "chunk")
    assert order.ready() == [1, 2, 3, 4]
    assert order.ready() == []


def test_a_model_made_by_a_load_begins_with_0() -> None:
    order = CallOrder(first_seq_id=0)
    order.submit(1, "step")
    assert order.ready() == []
    order.submit(0, "load")
    assert order.ready() == [0, 1]


def test_after_a_restart_what_did_not_end_is_given_again_and_gaps_still_wait() -> None:
    order = CallOrder.reopen({500: "a", 502: "c"}, {501: "b", 503: "d", 505: "f"})
    assert order.ready() == [501, 503]
    assert order.next_seq_id == 504
    assert not order.submit(502, "c").is_new
    with pytest.raises(PayloadConflict):
        order.submit(501, "other")
    with pytest.raises(SeqIdError, match="seq_id 499 is over: 504 is the next"):
        order.submit(499, "old")
    order.submit(504, "e")
    assert order.ready() == [504, 505]


def test_a_call_is_not_both_done_and_pending() -> None:
    with pytest.raises(ValueError, match="seq_id 7"):
        CallOrder.reopen({7: "a"}, {7: "a"})


def test_what_a_lost_worker_had_goes_before_what_waits() -> None:
    order = CallOrder()
    for seq_id in (1, 2, 3):
        order.submit(seq_id, "x")
    order.ready()
    order.finish(1)
    order.submit(4, "x")
    order.requeue_running()
    assert order.ready() == [2, 3, 4]


def test_errors_say_what_to_do() -> None:
    order = CallOrder(window=10)
    with pytest.raises(SeqIdError, match="seq_id 12 is more than 10 ahead of seq_id 1, which has not arrived") as far:
        order.submit(12, "x")
    order.submit(1, "x")
    with pytest.raises(PayloadConflict, match="seq_id 1 has arrived before") as conflict:
        order.submit(1, "y")
    assert far.value.remedy
    assert conflict.value.remedy
