"""Who leaves first."""

from plait.residency.eviction import Resident, least_soon


def test_copies_then_idle_then_late() -> None:
    residents = [
        Resident("next", 9.0, 0, False),
        Resident("later", 0.0, 1, False),
        Resident("idle", 5.0, None, False),
        Resident("idle long", 1.0, None, False),
        Resident("copy", 9.0, 0, True),
    ]
    assert least_soon(residents, 10.0) == ["copy", "idle long", "idle", "later", "next"]
