"""Searches find what a look at every device finds, and enter only where it can fit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.placement.resource_view import Bytes, Node, ResourceView, Slice, num_devices
from plait.types.errors import StateError


def cluster(num_groups: int = 4, num_nodes: int = 4, devices: int = 8, memory: Bytes | None = None) -> ResourceView:
    memory = memory or Bytes(80, 1000, 5000)
    return ResourceView(Node(f"n{g}-{n}", f"g{g}", devices, memory) for g in range(num_groups) for n in range(num_nodes))


def test_a_small_request_takes_the_tightest_node() -> None:
    view = cluster()
    view.occupy(Slice("n2-1", (0, 1, 2, 3, 4)))
    view.occupy(Slice("n3-0", (0, 1)))
    assert view.find(2) == (Slice("n2-1", (5, 6)),)
    assert view.find(4) == (Slice("n3-0", (2, 3, 4, 5)),)
    assert view.find(8) is not None


def test_a_large_request_stays_in_the_tightest_node_group_that_holds_it() -> None:
    view = cluster()
    view.occupy(Slice("n1-0", (0,)))
    found = view.find(24)
    assert found is not None
    assert {part.node_id.split("-")[0] for part in found} == {"n1"}
    wide = view.find(80)
    assert wide is not None
    assert num_devices(wide) == 80
    assert view.find(121) is None
    assert view.find(120) is not None


def test_memory_decides_too() -> None:
    view = cluster()
    assert view.find(8, Bytes(device=81)) is None
    assert view.find(8, Bytes(device=80, host=125, disk=625)) is not None
    assert view.find(8, Bytes(host=126)) is None
    view.set_memory("n0-0", 10, 5000)
    assert view.find(128, Bytes(host=125)) is None


def test_a_search_enters_only_node_groups_where_it_can_fit() -> None:
    view = cluster(num_groups=64, num_nodes=4)
    for group in range(63):
        for node in range(4):
            view.occupy(Slice(f"n{group}-{node}", tuple(range(8))))
    for devices in (1, 8, 32):
        view.num_visited = 0
        assert view.find(devices) is not None
        assert view.num_visited <= 4


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sets(st.integers(0, 7), min_size=1))), st.integers(1, 128))
def test_it_finds_if_and_only_if_there_is_something(taken: list[tuple[int, int, set[int]]], devices: int) -> None:
    view = cluster()
    for group, node, busy in taken:
        view.occupy(Slice(f"n{group}-{node}", tuple(busy)))
    free = [len(view.free(node.node_id)) for node in view.nodes()]
    exists = max(free) >= devices or 8 * sum(each == 8 for each in free) >= devices
    found = view.find(devices)
    assert (found is not None) == exists
    if found is not None:
        assert num_devices(found) == devices
        assert all(set(part.devices) <= view.free(part.node_id) for part in found)


def test_several_requests_get_disjoint_devices_or_none_at_all() -> None:
    view = cluster(1, 2)
    found = view.find_all([(8, Bytes()), (4, Bytes()), (4, Bytes())])
    assert found is not None
    assert len({(part.node_id, device) for slices in found for part in slices for device in part.devices}) == 16
    assert view.find_all([(8, Bytes()), (9, Bytes())]) is None
    assert view.num_free == 16


def test_nodes_join_and_leave_and_a_copy_is_apart() -> None:
    view = cluster(1, 1)
    other = view.copy()
    other.occupy(Slice("n0-0", (0,)))
    assert (view.num_free, other.num_free) == (8, 7)
    with pytest.raises(StateError, match="joined before"):
        view.add(Node("n0-0", "g0", 8))
    view.remove("n0-0")
    assert view.find(1) is None
    view.add(Node("n0-0", "g1", 8))
    assert view.find(8) is not None
