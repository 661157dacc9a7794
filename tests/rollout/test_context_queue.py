"""The order against a slow oracle, which sorts all that waits each time."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from plait.rollout.context_queue import ContextQueue
from plait.rollout.group import Sample
from plait.rollout.length_estimates import HISTORY_SAMPLES, EstimateErrors, HistoryKey, LengthHistory, Siblings
from tests.rollout.scheduled import request

PATIENCE, AGING_TURN, MOST = 6, 3, 40
KNOWN_TOKENS = {1: 30, 2: 8}
"""Prompts of which there is a history: mean and maximum."""


class FixedHistory(LengthHistory):
    def add(self, key: HistoryKey, siblings: Siblings) -> None:
        if key[2] in {hash((prompt,)) for prompt in KNOWN_TOKENS} and self.get(key) is None:
            super().add(key, siblings)


def history() -> LengthHistory:
    lengths = FixedHistory()
    for prompt, num_tokens in KNOWN_TOKENS.items():
        siblings = Siblings()
        siblings.add(num_tokens)
        lengths.add(("ada", "sums", hash((prompt,))), siblings)
    return lengths


class OracleGroup:
    def __init__(self, prompt: int, number: int) -> None:
        self.known = KNOWN_TOKENS.get(prompt)
        self.number = number
        self.members: list[Sample] = []
        self.finished: list[int] = []
        self.longest = 0
        self.probe = ""

    def see_lengths(self) -> None:
        self.longest = max([self.longest, *(len(m.request.tokens) for m in self.members)])

    @property
    def estimate(self) -> float:
        if self.known is None:
            estimate = float(max(self.finished, default=MOST))
        else:
            estimate = (HISTORY_SAMPLES * self.known + sum(self.finished)) / (HISTORY_SAMPLES + len(self.finished))
        return min(MOST, max(estimate, self.longest))


class QueueMachine(RuleBasedStateMachine):
    uses_context = True

    def __init__(self) -> None:
        super().__init__()
        self.queue = ContextQueue(history(), EstimateErrors(), PATIENCE, AGING_TURN, self.uses_context)
        self.groups: dict[str, OracleGroup] = {}
        self.waiting: list[Sample] = []
        self.running: list[Sample] = []
        self.since: dict[str, int] = {}
        """request_id -> chunks placed before its wait began."""
        self.number = self.num_placed = self.num_since_aged = 0

    def _group(self, sample: Sample) -> OracleGroup:
        return self.groups[sample.request.group or sample.request_id]

    @rule(group=st.sampled_from(["", "a", "b", "c"]), count=st.integers(1, 3))
    def add(self, group: str, count: int) -> None:
        for _ in range(count):
            request_id = f"r{self.number}"
            prompt = {"a": 1, "b": 7, "c": 8, "": 9}[group]
            sample = self.queue.join(request(request_id, group, max_new_tokens=MOST, prompt=prompt), self.number)
            self.groups.setdefault(group or request_id, OracleGroup(prompt, self.number)).members.append(sample)
            self.number += 1
            self._wait(sample)

    def _wait(self, sample: Sample) -> None:
        self.queue.push(sample)
        self.waiting.append(sample)
        self.since[sample.request_id] = self.num_placed
        group = self._group(sample)
        group.see_lengths()
        is_unknown = sample.request.group and group.known is None and not group.finished
        if is_unknown and not group.probe and self.uses_context:
            group.probe = sample.request_id

    def _in_order(self) -> list[Sample]:
        return sorted(self.waiting, key=self._rank)

    def _rank(self, sample: Sample) -> tuple[float, ...]:
        group = self._group(sample)
        if not self.uses_context:
            return (group.number, sample.number)
        if group.probe == sample.request_id:
            return (0, len(sample.request.tokens), sample.number)
        return (1, -group.estimate, group.number, sample.number)

    def _overdue(self) -> Sample | None:
        oldest = min(self.waiting, key=lambda s: (self.since[s.request_id], s.number))
        return oldest if self.num_placed - self.since[oldest.request_id] >= PATIENCE else None

    def _first(self) -> Sample:
        overdue = self._overdue()
        return overdue if overdue is not None and self.num_since_aged >= AGING_TURN - 1 else self._in_order()[0]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), in_order=st.booleans())
    def take(self, data: st.DataObject, in_order: bool) -> None:
        sample = self._first() if in_order else data.draw(st.sampled_from(self.waiting))
        self.num_since_aged = 0 if sample is self._overdue() else self.num_since_aged + 1
        self.num_placed += 1
        self.queue.take(sample)
        self.waiting.remove(sample)
        self.running.append(sample)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), drawn=st.integers(0, 20), is_last=st.booleans())
    def end_chunk(self, data: st.DataObject, drawn: int, is_last: bool) -> None:
        sample = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        tokens = sample.request.tokens
        tokens += [0] * min(drawn, MOST - len(tokens))
        if is_last:
            self._end(sample, is_finished=True)
        else:
            self._wait(sample)

    @precondition(lambda self: self.waiting or self.running)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        sample = data.draw(st.sampled_from([*self.waiting, *self.running]))
        if sample in self.waiting:
            self.queue.discard(sample)
            self.waiting.remove(sample)
        else:
            self.running.remove(sample)
        self._end(sample, is_finished=False)

    def _end(self, sample: Sample, is_finished: bool) -> None:
        group = self._group(sample)
        group.members.remove(sample)
        if is_finished:
            group.finished.append(len(sample.request.tokens))
        if group.finished:
            group.probe = ""
        elif group.probe == sample.request_id:
            heirs = sorted((m for m in group.members if m in self.waiting), key=lambda m: m.number)
            group.probe = heirs[0].request_id if heirs else ""
        if not group.members:
            del self.groups[sample.request.group or sample.request_id]
        assert (self.queue.end(sample, is_finished) is None) == bool(group.members)

    @invariant()
    def order_agrees(self) -> None:
        assert len(self.queue) == len(self.waiting)
        assert self.queue.is_idle == (not self.waiting and not self.running)
        assert self.queue.first() is (self._first() if self.waiting else None)
        in_order, seen = self._in_order(), set()
        expected = []
        for sample in in_order:
            group = self._group(sample)
            if group.probe == sample.request_id or id(group) not in seen:
                expected.append(sample)
            if group.probe != sample.request_id:
                seen.add(id(group))
        assert self.queue.candidates(4) == expected[:4]

    @invariant()
    def one_probe_for_each_unknown_group(self) -> None:
        if self.uses_context:
            for group in self.groups.values():
                waits = [m for m in group.members if m in self.waiting and m.request.group]
                assert not waits or bool(group.probe) == (group.known is None and not group.finished)


class PlainQueueMachine(QueueMachine):
    uses_context = False


for machine in (QueueMachine, PlainQueueMachine):
    machine.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
TestContextQueue = QueueMachine.TestCase
TestPlainQueue = PlainQueueMachine.TestCase


def test_a_sample_that_is_never_next_is_served_in_bounded_turns() -> None:
    """It is short, and long ones keep coming."""
    queue = ContextQueue(history(), EstimateErrors(), patience=20, aging_turn=4)
    short = queue.join(request("short", "b", max_new_tokens=1), 0)
    queue.push(short)
    queue.take(short)
    queue.push(queue.join(request("sibling", "b", max_new_tokens=1), 1))
    queue.end(short, is_finished=True)
    for number in range(2, 200):
        queue.push(queue.join(request(f"long{number}"), number))
        first = queue.first()
        assert first is not None
        queue.take(first)
        if first.request_id == "sibling":
            assert number - 2 <= 20 + 4 * 1
            return
    raise AssertionError("it starves")


def test_errors_are_of_what_was_expected_at_the_start() -> None:
    errors = EstimateErrors()
    queue = ContextQueue(history(), errors, PATIENCE, AGING_TURN)
    sample = queue.join(request("1", "a", prompt=1, max_new_tokens=MOST), 0)
    queue.push(sample)
    queue.take(sample)
    sample.request.tokens += [0] * 20
    queue.end(sample, is_finished=True)
    assert (errors.num, errors.mean_running_maximum, errors.mean_estimate) == (1, 1.0, 0.5)
