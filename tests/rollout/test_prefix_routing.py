"""Who gets a chunk, and what is to be pulled for it, by what engines have told. Time passes by events alone."""

from collections.abc import Sequence

import pytest

from plait.kv.block_log import DEVICE, DISK, HOST, STORE, BlockNews
from plait.kv.chain import chain
from plait.kv.pool import BLOCK_TOKENS
from plait.rollout.context_scheduler import ContextScheduler
from plait.rollout.engine_state import EngineState
from plait.rollout.holdings import PROMISED, Holdings
from plait.rollout.prefix_routing import PrefixRouter, root_of
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Placement
from plait.types.chunks import NOTHING_BELOW, PullFrom
from tests.rollout.scheduled import engine, request

LONG = 6 * BLOCK_TOKENS + 1


def keys_of(one: GenerationRequest) -> list[bytes]:
    tokens = (*one.context_tokens, *one.tokens)[:-1]
    return [link.key for link in chain(root_of("digest", "float32", one), tokens, BLOCK_TOKENS)]


def news(tier: str, came: Sequence[bytes] = (), went: Sequence[bytes] = (), is_cut: bool = False) -> BlockNews:
    return BlockNews(tier, b"".join(came), b"".join(went), is_cut)


class World:
    """A scheduler over engines without load, and what they have told."""

    def __init__(self, is_apart: bool = False, names: tuple[str, ...] = ("e0", "e1", "e2")) -> None:
        self.holdings = Holdings(is_apart=is_apart)
        router = PrefixRouter(self.holdings)
        router.root_of = lambda one: root_of("digest", "float32", one)
        self.router, self.scheduler, self.names = router, ContextScheduler(32, router=router), names

    def tell(self, name: str, tier: str, one: GenerationRequest, start: int = 0, end: int = 99) -> None:
        self.holdings.heard(name, [news(tier, keys_of(one)[start:end])])

    def place(self, one: GenerationRequest, **rows: int) -> Placement:
        self.scheduler.add(one)
        placed = self.scheduler.place(self.engines(**rows))
        assert placed is not None
        return placed

    def engines(self, **rows: int) -> list[EngineState]:
        return [engine(name, num_rows=rows.get(name, 0)) for name in self.names]


def test_another_requests_blocks_are_found_by_their_content() -> None:
    """A later turn, a request without siblings, another sample: what counts is what they begin with."""
    world, first = World(), request("first", prompt_tokens=LONG)
    assert world.place(first).engine == "e0"
    world.tell("e0", DEVICE, first)
    world.scheduler.finish("first")
    turn = request("turn", prompt_tokens=LONG)
    turn.context_tokens += (5, 6, 7)
    assert world.place(turn, e0=1).engine == "e0", "one row more is within the bound"
    assert world.place(request("other", prompt_tokens=LONG, prompt=2), e0=1).engine == "e1"
    assert world.place(request("strange", prompt_tokens=LONG, tenant="eve"), e0=1).engine == "e1", "P02: not another tenant's"


def test_a_loaded_engine_is_not_chosen_for_its_cache_and_the_pull_is_named() -> None:
    world, one = World(), request("one", prompt_tokens=LONG)
    world.tell("e0", DEVICE, one)
    world.tell("e0", STORE, one, end=4)
    placed = world.place(one, e0=9)
    assert (placed.engine, placed.pull) == ("e1", PullFrom(STORE, 4 * BLOCK_TOKENS))
    assert placed.request.next_chunk(32, pull=placed.pull).pull == placed.pull


@pytest.mark.parametrize("is_apart", [False, True])
def test_most_at_hand_then_most_on_the_device(is_apart: bool) -> None:
    """Host memory is everybody's on one machine, and its engine's alone on several."""
    world, one = World(is_apart), request("one", prompt_tokens=LONG)
    world.tell("e1", DEVICE, one, end=2)
    world.tell("e2", DEVICE, one, end=1)
    world.tell("e2", HOST, one, start=1, end=5)
    world.tell("e0", DISK, one)
    placed = world.place(one)
    assert placed.engine == ("e2" if is_apart else "e1")
    assert placed.pull == PullFrom(DISK, LONG - 1)


def test_nothing_is_pulled_that_is_at_hand() -> None:
    world, one = World(), request("one", prompt_tokens=LONG)
    world.tell("e0", HOST, one)
    world.tell("e0", STORE, one)
    assert world.place(one).pull == NOTHING_BELOW


def test_siblings_follow_a_prompt_that_is_computed_just_now() -> None:
    world = World()
    for number, name in enumerate(["e0", "e0"]):
        assert world.place(request(str(number), group="g", prompt_tokens=LONG), e0=number).engine == name
    world.scheduler.finish("0")
    assert world.holdings.num_blocks(PROMISED, "e0") == 0, "by now it has told whatever it has"
    assert world.place(request("2", group="g", prompt_tokens=LONG), e0=1).engine == "e1", "and it told of nothing"


def test_a_generation_goes_back_to_where_its_cache_is() -> None:
    world, one = World(), request("one", prompt_tokens=LONG)
    world.place(one)
    one.tokens += [9] * 32
    world.tell("e2", DEVICE, one)
    world.scheduler.requeue("one")
    placed = world.scheduler.place(world.engines(e2=1))
    assert placed is not None
    assert placed.engine == "e2"


def test_freed_cut_and_lost() -> None:
    world, one = World(), request("one", prompt_tokens=LONG)
    keys = keys_of(one)
    for tier in (DEVICE, HOST, DISK, STORE):
        world.holdings.heard("e0", [news(tier, keys)])
    world.holdings.heard("e0", [news(DEVICE, went=keys[3:]), news(DISK, went=keys[5:])])
    assert world.holdings.at_hand("e0", keys) == (6, 3)
    world.holdings.heard("e0", [news(HOST, keys[:1], is_cut=True)])
    assert world.holdings.at_hand("e0", keys) == (3, 3)
    assert world.holdings.at_hand("e1", keys) == (1, 0)
    world.place(one)
    world.scheduler.requeue_running("e0")
    assert world.holdings.at_hand("e0", keys) == (1, 0), "memory of the machine outlives an engine"
    apart = World(is_apart=True)
    apart.holdings.heard("e0", [news(HOST, keys), news(STORE, keys)])
    apart.scheduler.requeue_running("e0")
    assert apart.holdings.at_hand("e0", keys) == (0, 0)
    assert apart.place(request("two", prompt_tokens=LONG)).pull == PullFrom(STORE, LONG - 1)
    apart.scheduler.requeue_running()
    assert apart.holdings.num_blocks(STORE) == 6


def test_what_has_gone_is_forgotten() -> None:
    world = World()
    for number in range(50):
        one = request(str(number), group=f"g{number % 7}", prompt_tokens=LONG, prompt=number)
        world.place(one)
        if number % 3:
            world.scheduler.finish(one.request_id)
        else:
            world.scheduler.remove(one.request_id)
    router = world.router
    assert not router._chains
    assert not router._shared
    assert not router._promises
    assert not world.holdings._index.places
