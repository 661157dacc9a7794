"""Against a dictionary that is sorted each time."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from plait.rollout.keyed_heap import KeyedHeap

items = st.sampled_from("abcdefgh")


class HeapMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.heap: KeyedHeap[tuple[int]] = KeyedHeap()
        self.keys: dict[str, int] = {}

    @rule(item=items, key=st.integers(0, 5))
    def put(self, item: str, key: int) -> None:
        self.heap.put(item, (key,))
        self.keys[item] = key

    @rule(item=items)
    def discard(self, item: str) -> None:
        self.heap.discard(item)
        self.keys.pop(item, None)

    @rule(count=st.integers(0, 9))
    def top(self, count: int) -> None:
        assert self.heap.top(count) == self._order()[:count]

    def _order(self) -> list[str]:
        return sorted(self.keys, key=lambda item: (self.keys[item], item))

    @invariant()
    def agrees(self) -> None:
        assert self.heap.first() == (self._order()[0] if self.keys else None)
        assert len(self.heap) == len(self.keys)
        assert all((item in self.heap) == (item in self.keys) for item in "abcdefgh")
        assert all(self.heap.key(item) == (key,) for item, key in self.keys.items())


TestKeyedHeap = HeapMachine.TestCase


def test_what_changes_often_takes_no_memory() -> None:
    heap: KeyedHeap[tuple[int]] = KeyedHeap()
    for number in range(10_000):
        heap.put(f"item{number % 10}", (number,))
    assert len(heap._heap) <= 30


def test_no_key_of_what_is_not_there() -> None:
    with pytest.raises(KeyError):
        KeyedHeap[tuple[int]]().key("a")
