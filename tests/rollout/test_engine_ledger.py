"""The ledger against a list of what is reserved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.rollout.engine_ledger import EngineLedger, Reservation

NAMES = ("a", "b", "c")
events = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.sampled_from(NAMES), st.integers(1, 9)),
        st.tuples(st.just("free"), st.integers(0, 20), st.none()),
        st.tuples(st.just("lose"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("add"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("most"), st.sampled_from(NAMES), st.integers(4, 6)),
    ),
    max_size=40,
)


@given(events)
def test_sums_are_of_what_is_reserved(events: list[tuple[str, object, int | None]]) -> None:
    ledger = EngineLedger()
    held: dict[str, Reservation] = {}
    here = dict.fromkeys(NAMES, True)
    most = dict.fromkeys(NAMES, 5)
    for name in NAMES:
        ledger.add(name, 100)
    for number, (kind, which, tokens) in enumerate(events):
        if kind == "reserve" and here[str(which)]:
            held[f"c{number}"] = Reservation(str(which), f"r{number}", tokens or 0)
            ledger.reserve(f"c{number}", str(which), f"r{number}", tokens or 0)
        elif kind == "free":
            assert ledger.free(f"c{which}") == held.pop(f"c{which}", None)
        elif kind == "lose":
            ledger.lose(str(which))
            here[str(which)] = False
            held = {chunk: reservation for chunk, reservation in held.items() if reservation.engine != which}
        elif kind == "add" and not here[str(which)]:
            ledger.add(str(which), 100)
            here[str(which)] = True
        elif kind == "most":
            most[str(which)] = tokens or 0
        states = ledger.states(most.__getitem__)
        assert [state.name for state in states] == list(NAMES)
        for state in states:
            mine = [reservation for reservation in held.values() if reservation.engine == state.name]
            assert state.reserved_tokens == sum(reservation.tokens for reservation in mine)
            assert state.num_rows == (len(mine) if here[state.name] else most[state.name])
            assert state.max_rows == most[state.name]


def test_an_engine_is_added_once_and_a_lost_one_takes_nothing() -> None:
    ledger = EngineLedger()
    ledger.add("a", 100)
    with pytest.raises(ValueError, match="'a' is here already"):
        ledger.add("a", 100)
    ledger.lose("a")
    ledger.lose("never here")
    with pytest.raises(ValueError, match="cannot be reserved at engine 'a'"):
        ledger.reserve("c", "a", "r", 1)
