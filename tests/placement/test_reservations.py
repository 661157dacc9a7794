"""All or nothing; the sums always hold."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.placement.reservations import Claim, Reservations
from plait.placement.resource_view import Bytes, Node, ResourceView, Slice
from plait.types.errors import StateError

NUM_NODES, NUM_DEVICES, HORIZON = 2, 3, 6
MEMORY = Bytes(device=10, host=20, disk=30)


def ledger() -> tuple[ResourceView, Reservations]:
    view = ResourceView(Node(f"n{number}", "g", NUM_DEVICES, MEMORY) for number in range(NUM_NODES))
    return view, Reservations(view)


slices = st.builds(
    Slice,
    st.sampled_from(["n0", "n1"]),
    st.sets(st.integers(0, NUM_DEVICES - 1), min_size=1).map(lambda found: tuple(sorted(found))),
)
claims = st.builds(
    lambda parts, share, each, start, length: Claim(tuple(parts), share, each, start, start + length),
    st.lists(slices, min_size=1, max_size=2, unique_by=lambda part: part.node_id),
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    st.builds(Bytes, st.integers(0, 12), st.integers(0, 12), st.integers(0, 12)),
    st.integers(0, HORIZON - 1),
    st.integers(1, HORIZON),
)
operations = st.lists(
    st.tuples(st.sampled_from(["reserve", "release", "replace"]), st.lists(claims, max_size=3), st.integers(0, 9))
)


def used(held: dict[int, tuple[Claim, ...]], node_id: str, device: int | None, at: float, tier: str | None) -> float:
    """By looking at every claim: the share of a device, or the bytes of a tier."""
    total = 0.0
    for claim in (claim for each in held.values() for claim in each):
        for part in claim.slices:
            if part.node_id == node_id and claim.start_s <= at < claim.end_s:
                total += len(part.devices) * getattr(claim.each, tier) if tier else claim.share * (device in part.devices)
    return total


def within(held: dict[int, tuple[Claim, ...]]) -> bool:
    limits = {"device": MEMORY.device * NUM_DEVICES, "host": MEMORY.host, "disk": MEMORY.disk}
    return all(
        all(used(held, node, device, at, None) <= 1 for device in range(NUM_DEVICES))
        and all(used(held, node, None, at, tier) <= limit for tier, limit in limits.items())
        for node in ("n0", "n1")
        for at in range(2 * HORIZON)
    )


@settings(max_examples=60)
@given(operations)
def test_sums_hold_and_only_what_breaks_them_is_refused(steps: list[tuple[str, list[Claim], int]]) -> None:
    view, reservations = ledger()
    held: dict[int, tuple[Claim, ...]] = {}
    for kind, wanted, number in steps:
        fits = all(claim.each.device <= MEMORY.device for claim in wanted)
        chosen = sorted(held)[number % len(held)] if held else None
        if kind == "reserve":
            taken = reservations.reserve(wanted)
            assert (taken is not None) == (fits and within({**held, -1: tuple(wanted)}))
            if taken is not None:
                held[taken] = tuple(wanted)
        elif chosen is not None and kind == "replace":
            others = {key: value for key, value in held.items() if key != chosen}
            is_replaced = reservations.replace(chosen, wanted)
            assert is_replaced == (fits and within({**others, chosen: tuple(wanted)}))
            held[chosen] = tuple(wanted) if is_replaced else held[chosen]
        elif chosen is not None:
            reservations.release(chosen)
            del held[chosen]
        check(view, reservations, held)
    for reservation in held:
        reservations.release(reservation)
    assert view.num_free == NUM_NODES * NUM_DEVICES
    assert view.find(NUM_DEVICES, Bytes(10, 6, 10)) is not None


def check(view: ResourceView, reservations: Reservations, held: dict[int, tuple[Claim, ...]]) -> None:
    assert within(held)
    for node in ("n0", "n1"):
        claimed = {
            device
            for each in held.values()
            for claim in each
            for part in claim.slices
            for device in part.devices
            if part.node_id == node
        }
        assert view.free(node) == frozenset(range(NUM_DEVICES)) - claimed
        assert reservations.num_bytes(node, "host", 2, 3) == used(held, node, None, 2, "host")
        assert reservations.share(node, 1, 2, 3) == used(held, node, 1, 2, None)


def test_windows_that_do_not_meet_share_a_device() -> None:
    _, reservations = ledger()
    part = (Slice("n0", (0,)),)
    assert reservations.reserve([Claim(part, 1.0, start_s=0, end_s=5), Claim(part, 1.0, start_s=5, end_s=9)]) is not None
    assert reservations.reserve([Claim(part, 0.1, start_s=8)]) is None
    assert reservations.reserve([Claim(part, 1.0, start_s=9)]) is not None


def test_nonsense_is_an_error_and_changes_nothing() -> None:
    view, reservations = ledger()
    part = Slice("n0", (0,))
    for claim in (Claim((part,), 1.5), Claim((part,), start_s=3, end_s=3), Claim((part, part), 0.5)):
        with pytest.raises(StateError):
            reservations.reserve([Claim((Slice("n1", (0,)),), 0.5), claim])
        assert view.num_free == NUM_NODES * NUM_DEVICES
    with pytest.raises(StateError, match="not held"):
        reservations.release(77)
