"""Against the rule as the paper states it, on a plain record of all that ran."""

from hypothesis import given
from hypothesis import strategies as st

from plait.rollout.engine_state import EngineState
from plait.rollout.routing import RELATIVE_SPREAD, Router
from tests.rollout.scheduled import engine, request

NAMES = ("e0", "e1", "e2")
MAX_SPREAD = 4
runs = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(NAMES), st.integers(0, 9)), max_size=12)
"""(which request, where, tokens drawn)."""


@given(
    runs=runs,
    rows=st.tuples(*[st.integers(0, 9)] * 3),
    full=st.sets(st.sampled_from(NAMES), max_size=2),
    lost=st.sampled_from(["", *NAMES]),
)
def test_affinity_within_a_bound_on_the_load(
    runs: list[tuple[int, str, int]], rows: tuple[int, ...], full: set[str], lost: str
) -> None:
    router = Router(MAX_SPREAD)
    requests = [request(str(n), group=("g" if n < 3 else ""), prompt_tokens=5) for n in range(5)]
    groups = [("ada", "sums", r.group or r.request_id) for r in requests]
    own: dict[int, tuple[str, int]] = {}
    seen: set[str] = set()
    for which, name, drawn in runs:
        router.started(requests[which], groups[which], name)
        requests[which].tokens += [0] * drawn
        router.ended(requests[which])
        own[which] = (name, 5 + len(requests[which].tokens))
        seen |= {name} if which < 3 else set()
    router.lose(lost)
    engines = [engine(name, num_rows=n) for name, n in zip(NAMES, rows, strict=True)]
    candidates = [each for each in engines if each.name not in full]
    for which, each in enumerate(requests):
        hits = {name: 5 if name in seen and which < 3 else 0 for name in NAMES}
        if which in own:
            hits[own[which][0]] = own[which][1]
        hits |= {lost: 0} if lost else {}
        check(router.choose(each, groups[which], candidates), hits, candidates)


def check(name: str, hits: dict[str, int], candidates: list[EngineState]) -> None:
    rows = {each.name: each.num_rows for each in candidates}
    follows = max(rows.values()) - min(rows.values()) <= min(MAX_SPREAD, max(1, RELATIVE_SPREAD * max(rows.values())))
    if follows:
        assert hits[name] == max(hits[each] for each in rows)
    else:
        assert rows[name] == min(rows.values())
    first = min(candidates, key=lambda each: (-hits[each.name] if follows else 0, each.num_rows, -each.free_tokens))
    assert name == first.name


def test_what_has_gone_is_forgotten() -> None:
    router = Router()
    for number in range(100):
        each, key = request(str(number), group=f"g{number}"), ("ada", "sums", f"g{number}")
        router.started(each, key, "e0")
        router.forget(each.request_id)
        router.forget_group(key)
    router.ended(request("1"))
    assert not router._last
    assert not router._prompts


def test_all_engines_lost() -> None:
    router, each = Router(), request("1", group="g")
    router.started(each, ("ada", "sums", "g"), "e0")
    router.lose(None)
    assert router.hits(each, ("ada", "sums", "g")) == {}
