"""Whatever the order and repetition of messages, every engine's trees end up as if fed with all sequences."""

from hypothesis import given, settings
from hypothesis import strategies as st

from plait.drafting.draft import DraftIncrement
from plait.drafting.hub import DraftHub
from plait.drafting.local_drafter import LocalDrafter
from plait.drafting.suffix_tree import SuffixTree

ENGINES = ("e0", "e1", "e2")
TEXTS = {"r0": (1, 2, 3, 1, 2, 3, 4), "r1": (1, 2, 4, 4, 1, 2), "r2": (3, 1, 2, 3, 1)}
DECODE = st.tuples(
    st.just("decode"), st.sampled_from(ENGINES), st.sampled_from(sorted(TEXTS)), st.integers(0, 6), st.integers(1, 4)
)
DELIVER = st.tuples(st.just("deliver"), st.integers(0, 50), st.booleans())
FETCH = st.tuples(st.just("fetch"), st.sampled_from(ENGINES))


class Network:
    """Three engines and the hub, with messages that wait, overtake each other and come twice."""

    def __init__(self) -> None:
        self.hub = DraftHub()
        self.drafters = {engine: LocalDrafter() for engine in ENGINES}
        self.messages: list[tuple[str, DraftIncrement]] = []
        for drafter in self.drafters.values():
            drafter.register_group("g")

    def decode(self, engine: str, request: str, start: int, num: int) -> None:
        self.drafters[engine].append("g", request, TEXTS[request][start : start + num], start)
        self.messages += [(engine, update) for update in self.drafters[engine].take_updates()]

    def deliver(self, index: int, again: bool) -> None:
        if self.messages:
            index %= len(self.messages)
            engine, piece = self.messages[index] if again else self.messages.pop(index)
            self.hub.update(engine, piece.group, piece.request, piece.start, piece.tokens)

    def fetch(self, engine: str) -> None:
        self.drafters[engine].absorb(self.hub.fetch(engine))

    def settle(self) -> None:
        """Every token is decoded somewhere, every message comes, every engine fetches."""
        for i, (request, text) in enumerate(TEXTS.items()):
            self.decode(ENGINES[i], request, 0, 3)
            self.decode(ENGINES[i - 1], request, 3, len(text))
        while self.messages:
            self.deliver(0, False)
        for engine in ENGINES:
            self.hub.register_group(engine, "late joiner's group")
            self.fetch(engine)


@given(st.lists(st.one_of(DECODE, DELIVER, FETCH), max_size=30))
@settings(max_examples=80, deadline=None)
def test_all_engines_learn_all_sequences(events: list[tuple]) -> None:
    network, expected = Network(), SuffixTree()
    for request, text in TEXTS.items():
        expected.append(request, text)
    for name, *arguments in events:
        getattr(network, name)(*arguments)
    network.settle()
    for drafter in network.drafters.values():
        tree = drafter.tree("g")
        assert {name: tree.tokens(name) for name in TEXTS} == TEXTS
        for context in [(1,), (1, 2), (3, 1, 2), (4,)]:
            assert tree.speculate(context, 4) == expected.speculate(context, 4)
            assert tree.speculate_paths(context, 4, 3) == expected.speculate_paths(context, 4, 3)
    assert not any(network.hub.fetch(engine) for engine in ENGINES)


def test_an_engine_is_not_sent_what_it_alone_decoded() -> None:
    hub = DraftHub()
    for engine in ENGINES:
        hub.register_group(engine, "g")
    hub.update("e0", "g", "r", 0, (1, 2))
    assert hub.fetch("e0") == []
    assert hub.fetch("e1") == [DraftIncrement("g", "r", 0, (1, 2))]
    hub.update("e1", "g", "r", 2, (3,))
    assert hub.fetch("e1") == [DraftIncrement("g", "r", 2, (3,))]
    assert hub.fetch("e0") == [DraftIncrement("g", "r", 0, (1, 2, 3))]


def test_an_engine_that_begins_anew_gets_everything() -> None:
    hub = DraftHub()
    hub.update("e0", "g", "r", 0, (1, 2))
    hub.lose_engine("e0")
    assert hub.fetch("e0") == []
    hub.register_group("e0", "g")
    assert hub.fetch("e0") == [DraftIncrement("g", "r", 0, (1, 2))]
    hub.register_group("e0", "g")
    assert hub.fetch("e0") == [DraftIncrement("g", "r", 0, (1, 2))]


def test_late_messages_of_an_ended_group_are_ignored() -> None:
    hub = DraftHub()
    hub.register_group("e0", "g")
    hub.update("e1", "g", "r", 0, (1, 2))
    hub.end_group("g")
    hub.update("e1", "g", "r", 2, (3,))
    hub.register_group("e0", "g")
    assert hub.fetch("e0") == []
    assert hub.groups == ()
    assert hub.num_tokens == 0


def test_the_hub_is_bounded() -> None:
    hub = DraftHub(max_tokens=100)
    for i in range(20):
        hub.update("e0", f"g{i}", f"r{i}", 0, range(30))
        assert hub.num_tokens <= 100
    assert hub.groups == ("g17", "g18", "g19")
