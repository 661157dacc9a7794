"""The heap against a sorted list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.operations.place_heap import Place, PlaceHeap


@given(st.data(), st.permutations(range(40)))
def test_what_is_left_comes_out_in_order(data: st.DataObject, numbers: list[int]) -> None:
    heap = PlaceHeap()
    left: list[Place] = []
    for number in numbers:
        heap.push((number, "r"))
        left = sorted([*left, (number, "r")])
        for _ in range(data.draw(st.integers(0, 2))):
            if data.draw(st.booleans()) and left:
                assert heap.pop() == left.pop(0)
            elif left:
                heap.discard(left.pop(data.draw(st.integers(0, len(left) - 1))))
        assert len(heap) == len(left)
    assert [heap.pop() for _ in left] == left
    with pytest.raises(IndexError):
        heap.pop()


def test_what_is_discarded_does_not_pile_up() -> None:
    heap = PlaceHeap()
    for number in range(1000, 2000):
        heap.push((number, "r"))
    for number in range(1999, 1003, -1):
        heap.discard((number, "r"))
        assert len(heap._heap) <= 2 * len(heap) + 9
    with pytest.raises(KeyError):
        heap.discard((1999, "r"))
    assert [heap.pop()[0] for _ in range(4)] == [1000, 1001, 1002, 1003]
