"""What caches hold, by hand: who has to compute what, and what is fetched for how long."""

from collections.abc import Callable

from plait.simulation.caches import Caches
from plait.simulation.light_request import light_request
from plait.types.chunks import Chunk
from plait.types.policy import PolicyVersion

POLICY = PolicyVersion("tenant", "task", 0)
FETCH: dict[str, Callable[[int], float]] = {"e0": lambda tokens: 0.1 * tokens, "e1": lambda tokens: 0.2 * tokens}


def chunk(name: str, context_tokens: int, drawn: int = 0, group: str = "") -> Chunk:
    request = light_request(name, "task", POLICY, context_tokens, 100, group)
    request.drew(drawn)  # type: ignore[attr-defined]
    return request.next_chunk(10)


def test_siblings_find_the_prompt_where_it_was_computed() -> None:
    caches = Caches(FETCH)
    assert caches.needs("e0", chunk("a", 20, group="g")) == (20, 0.0)
    assert caches.needs("e0", chunk("b", 20, group="g")) == (0, 0.0)
    assert caches.needs("e1", chunk("c", 20, group="g")) == (0, 4.0)
    assert caches.needs("e1", chunk("d", 20, group="g")) == (0, 0.0)
    assert (caches.counts.computed_tokens, caches.counts.hit_tokens, caches.counts.fetched_tokens) == (20, 40, 20)
    caches.forget_prompt("g")
    assert caches.needs("e0", chunk("e", 20, group="g")) == (20, 0.0)


def test_a_chunk_goes_on_from_what_the_one_before_left() -> None:
    caches = Caches(FETCH)
    caches.store("e0", "a", 30)
    assert caches.needs("e0", chunk("a", 20, 10)) == (0, 0.0)
    caches.store("e0", "a", 40)
    assert caches.needs("e1", chunk("a", 20, 20)) == (0, 8.0)
    assert caches.stored_tokens == 0


def test_a_turn_computes_what_the_environment_said() -> None:
    caches = Caches(FETCH)
    caches.store("e0", "a/0", 30)
    caches.follow("a/1", "a/0")
    assert caches.needs("e0", chunk("a/1", 37)) == (7, 0.0)
    caches.store("e0", "a/1", 50)
    caches.follow("a/2", "a/1")
    caches.forget("a/2")
    assert caches.needs("e0", chunk("a/2", 55)) == (55, 0.0)


def test_what_was_stored_first_is_lost_first() -> None:
    caches = Caches(FETCH, pool_tokens=100)
    for name in ("a", "b", "c"):
        caches.store("e0", name, 50)
    assert (caches.stored_tokens, caches.counts.most_stored_tokens) == (100, 100)
    assert caches.needs("e0", chunk("a", 40, 10)) == (50, 0.0)
    assert caches.needs("e0", chunk("b", 40, 10)) == (0, 0.0)
    caches.forget("c")
    assert caches.stored_tokens == 0
