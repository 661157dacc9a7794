"""Who is on the device, and who leaves for whom."""

from hypothesis import given
from hypothesis import strategies as st

from plait.cluster.groups.resident_set import ResidentSet
from plait.scheduling.setup_times import SetupTimes

NAMES = ("a", "b", "c", "d")


def residents(budget: int, sizes: dict[str, int], *resident: str) -> ResidentSet:
    made = ResidentSet(budget, SetupTimes())
    made.report(sizes, ())
    for name in resident:
        made.use(name)
    return made


def test_what_fits_stays_and_needs_no_setup() -> None:
    made = residents(10, {"a": 5, "b": 5})
    assert (made.use("a"), made.use("b"), made.use("a")) == ((), (), None)
    assert (made.setup_s("a"), made.setup_s("b")) == (0, 0)


def test_the_least_recently_used_leaves_first_and_no_more_than_need_be() -> None:
    made = residents(10, {"a": 4, "b": 4, "c": 4, "d": 8}, "a", "b")
    assert made.use("a") is None
    assert made.use("c") == ("b",)
    assert made.resident == ("a", "c")
    assert made.use("d") == ("a", "c")


def test_what_was_staged_after_a_switch_counts_when_that_is_reported() -> None:
    """The process says how it is after the switch; that d comes for b, and is used last, it does not know yet."""
    made = residents(6, {"a": 1, "b": 2, "c": 2, "d": 4}, "b", "a")
    assert made.stage("d", ("a",)) == ("b",)
    made.report({"a": 1, "b": 2, "c": 2, "d": 4}, ("b", "a"), is_switch=True)
    assert made.resident == ("a", "d")
    assert made.use("c") == ("a",)
    made.report({"a": 1, "b": 2, "c": 2, "d": 4}, ("d", "c"), is_switch=True)
    assert made.resident == ("d", "c")


def test_setup_is_loading_from_where_it_is_and_offloading_who_is_in_the_way() -> None:
    times = SetupTimes()
    times.observe_load("b", "host", 2.0)
    times.observe_load("b", "disk", 30.0)
    times.observe_offload("a", 1.0)
    made = ResidentSet(10, times)
    made.report({"a": 6, "b": 6}, ("a",))
    assert made.setup_s("b") == 3.0
    made.found_in("b", "disk")
    assert made.setup_s("b") == 31.0
    made.report({"a": 6, "b": 6}, ())
    assert made.setup_s("b") == 30.0


def test_what_the_process_reports_is_what_counts() -> None:
    made = residents(10, {"a": 4, "b": 4}, "a", "b")
    made.report({"a": 4, "b": 9}, ("b",))
    assert (made.resident, made.resident_bytes) == (("b",), 9)
    assert made.use("a") == ("b",)


@given(
    budget=st.integers(1, 20),
    sizes=st.fixed_dictionaries({name: st.integers(1, 20) for name in NAMES}),
    used=st.lists(st.sampled_from(NAMES), max_size=30),
)
def test_they_fit_as_far_as_each_fits_alone(budget: int, sizes: dict[str, int], used: list[str]) -> None:
    made = residents(budget, sizes)
    expected: list[str] = []  # The oracle: the list of those there, the least recently used first.
    for name in used:
        was_there = name in expected
        expected = [other for other in expected if other != name]
        left: list[str] = []
        while not was_there and expected and sizes[name] + sum(sizes[other] for other in expected) > budget:
            left.append(expected.pop(0))
        expected.append(name)
        assert made.use(name) == (None if was_there else tuple(left))
        assert made.resident == tuple(expected)
        assert made.resident_bytes <= max(budget, sizes[name])
