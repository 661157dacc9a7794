"""The buffer against a plain model: lists in order of arrival."""

from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from plait.rollout.buffer import RequestBuffer
from plait.rollout.engine_state import EngineState
from plait.rollout.request import GenerationRequest
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams

TURN_CHUNKS = 3


def request(request_id: str, queue: str = "sums") -> GenerationRequest:
    return GenerationRequest(request_id, queue, PolicyVersion("local", queue, 0), None, (1,), SamplingParams(8))


class BufferMachine(RuleBasedStateMachine):
    """Adds, takes, requeues, finishes, removes and loses the engine, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = RequestBuffer(turn_chunks=TURN_CHUNKS)
        self.waiting: dict[str, list[int]] = defaultdict(list)
        self.running: list[int] = []
        self.queues: list[str] = []
        self.num_left: dict[int, int] = {}
        self.turns_since: dict[str, list[str]] = {}
        """For each queue that waits, who has been served since it last was, or since it began to wait."""

    def _wait(self, number: int) -> None:
        queue = self.queues[number]
        if not self.waiting[queue]:
            self.turns_since[queue] = []
        self.waiting[queue] = sorted([*self.waiting[queue], number])

    def _leave(self, number: int) -> None:
        self.num_left[number] += 1

    @rule(queue=st.sampled_from("abc"))
    def add(self, queue: str) -> None:
        number = len(self.queues)
        self.queues.append(queue)
        self.num_left[number] = 0
        self.buffer.add(request(str(number), queue))
        self._wait(number)

    @rule()
    def take(self) -> None:
        taken = self.buffer.take()
        if not any(self.waiting.values()):
            assert taken is None
            return
        assert taken is not None
        number = int(taken.request_id)
        assert number == self.waiting[taken.queue].pop(0), "first come first served within a queue"
        self.running.append(number)
        self._note_turn(taken.queue)

    def _note_turn(self, queue: str) -> None:
        self.turns_since.pop(queue)
        for turns in self.turns_since.values():
            turns.append(queue)
            assert turns.count(queue) <= TURN_CHUNKS, "a queue had more than its turn while another waited"
        if self.waiting[queue]:
            self.turns_since[queue] = []

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        number = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.buffer.requeue(str(number))
        self._wait(number)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        number = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        assert self.buffer.finish(str(number)).request_id == str(number)
        self._leave(number)

    @precondition(lambda self: self.queues)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.queues) - 1))
        was_running, was_waiting = number in self.running, number in self.waiting[self.queues[number]]
        assert self.buffer.remove(str(number)) == was_running
        if was_running:
            self.running.remove(number)
        if was_waiting:
            self.waiting[self.queues[number]].remove(number)
            if not self.waiting[self.queues[number]]:
                self.turns_since.pop(self.queues[number])
        if was_running or was_waiting:
            self._leave(number)

    @rule()
    def lose_engine(self) -> None:
        self.buffer.requeue_running()
        for number in sorted(self.running):
            self._wait(number)
        self.running.clear()

    @invariant()
    def counts_agree(self) -> None:
        waiting = [number for numbers in self.waiting.values() for number in numbers]
        assert (self.buffer.num_running, self.buffer.num_waiting) == (len(self.running), len(waiting))
        assert [int(r.request_id) for r in self.buffer] == sorted(waiting + self.running)
        assert all(self.buffer.running(str(number)) for number in self.running)
        assert not any(self.buffer.running(str(number)) for number in waiting)
        left = {number for number, times in self.num_left.items() if times}
        assert max(self.num_left.values(), default=0) <= 1
        assert left == set(range(len(self.queues))) - set(waiting) - set(self.running), "each leaves exactly once"

    def teardown(self) -> None:
        """Whatever happened, all that is left can be served."""
        while (taken := self.buffer.take()) is not None:
            self.buffer.finish(taken.request_id)
        assert self.buffer.num_waiting == 0


BufferMachine.TestCase.settings = settings(deadline=None)
TestBuffer = BufferMachine.TestCase


def test_what_has_begun_goes_before_what_has_not() -> None:
    buffer = RequestBuffer()
    for request_id in "123":
        buffer.add(request(request_id))
    first, second = buffer.take(), buffer.take()
    assert first is not None
    assert second is not None
    buffer.requeue(second.request_id)
    buffer.requeue(first.request_id)
    assert [r.request_id for r in (buffer.take(), buffer.take(), buffer.take()) if r is not None] == ["1", "2", "3"]


@pytest.mark.parametrize("turn_chunks", [1, 4])
def test_a_burst_of_one_task_delays_another_by_one_turn(turn_chunks: int) -> None:
    buffer = RequestBuffer(turn_chunks)
    for number in range(100):
        buffer.add(request(f"burst{number}", "burst"))
    buffer.add(request("single", "single"))
    taken = [buffer.take() for _ in range(turn_chunks + 1)]
    assert [r.queue for r in taken if r is not None] == ["burst"] * turn_chunks + ["single"]


def test_a_turn_ends_early_when_nothing_more_of_it_waits() -> None:
    buffer = RequestBuffer(turn_chunks=4)
    for request_id, queue in (("1", "a"), ("2", "b"), ("3", "b")):
        buffer.add(request(request_id, queue))
    first = buffer.take()
    assert first is not None
    buffer.requeue(first.request_id)
    assert [r.request_id for r in (buffer.take(), buffer.take(), buffer.take()) if r is not None] == ["2", "3", "1"]


def test_a_turn_that_lost_all_its_requests_leaves_the_next_a_whole_one() -> None:
    buffer = RequestBuffer(turn_chunks=2)
    for request_id, queue in (("1", "a"), ("2", "a"), ("3", "b")):
        buffer.add(request(request_id, queue))
    buffer.take()
    buffer.remove("2")
    for request_id in ("4", "5"):
        buffer.add(request(request_id, "a"))
    assert [r.request_id for r in (buffer.take(), buffer.take(), buffer.take()) if r is not None] == ["3", "4", "5"]


def test_a_request_id_is_not_in_the_buffer_twice() -> None:
    buffer = RequestBuffer()
    buffer.add(request("1"))
    with pytest.raises(ValueError, match="'1' is in the buffer already"):
        buffer.add(request("1"))
    buffer.remove("1")
    buffer.add(request("1"))


def test_only_what_runs_is_requeued_or_finished() -> None:
    buffer = RequestBuffer()
    buffer.add(request("1"))
    for call in (buffer.requeue, buffer.finish):
        with pytest.raises(KeyError):
            call("1")


def test_a_chunk_goes_to_the_engine_with_the_fewest_rows_that_it_fits() -> None:
    buffer = RequestBuffer(chunk_tokens=4)
    for request_id in "123":
        buffer.add(request(request_id))
    engines = [EngineState("tight", 8, 5, 4, 0), EngineState("busy", 8, 0, 4, 3), EngineState("free", 8, 0, 4, 2)]
    placement = buffer.place(engines)
    assert placement is not None
    assert (placement.request.request_id, placement.engine, placement.budget_tokens, placement.footprint_tokens) == (
        "1", "free", 4, 5
    )  # fmt: skip
    assert buffer.place(engines[:1]) is None
    assert buffer.place([]) is None
    assert (buffer.num_running, buffer.num_waiting) == (1, 2)


def test_only_what_ran_on_a_lost_engine_is_requeued() -> None:
    buffer = RequestBuffer(chunk_tokens=4)
    for request_id in "12":
        buffer.add(request(request_id))
    for name in ("a", "b"):
        assert buffer.place([EngineState(name, 8, 0, 1, 0)]) is not None
    buffer.requeue_running("a")
    assert buffer.running("1") is None
    assert buffer.running("2") is not None
