"""Totals of a worker group."""

from plait.observe import group_counters as names
from plait.observe.group_counters import GroupCounters


def test_totals_add_up() -> None:
    counters = GroupCounters()
    assert counters.mean_delay_s == 0
    counters.switched(0.5)
    counters.started(waited_s=2.0)
    counters.ended(1.5)
    counters.started(waited_s=1.0)
    counters.ended(None)
    assert counters.mean_delay_s == 1.5
    counters.prefetched(spent_s=0.75, waited_s=0.25)
    assert counters.snapshot() == {
        names.SWITCHES: 2, names.SETUP_S: 0.75, names.CALLS: 2, names.WAITED_S: 3.0, names.SERVICE_S: 1.5,
        names.PREFETCHES: 1, names.PREFETCH_S: 0.75,
    }  # fmt: skip
