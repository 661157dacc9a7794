"""Which trainer an adapter's next work goes to, against an obvious model of it."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from plait.cluster.trainer_placement import MOVE_TOKENS, TrainerPlacement


def placement(*trainers: str) -> TrainerPlacement:
    made = TrainerPlacement()
    for trainer in trainers:
        made.add_trainer(trainer)
    return made


def place(made: TrainerPlacement, adapter: str) -> str:
    trainer = made.choose(adapter)
    if made.home(adapter) != trainer:
        made.settle(adapter, trainer)
    return trainer


def test_new_adapters_are_spread() -> None:
    made = placement("x", "y")
    assert [place(made, name) for name in "abcd"] == ["x", "y", "x", "y"]


def test_an_adapter_stays_until_its_trainer_has_much_more_to_do() -> None:
    made = placement("x", "y")
    for name in "abc":
        place(made, name)
    made.begin("a", 1, MOVE_TOKENS)
    assert made.choose("c") == "x"
    made.begin("a", 2, 1)
    assert made.choose("c") == "y"
    assert made.choose("c", may_move=False) == "x"
    made.begin("c", 1, 0)
    assert made.choose("c") == "x", "what has work under way does not move"
    made.end("c", 1)
    made.end_all("a")
    assert made.choose("c") == "x"
    assert not made.has_work


def test_a_lost_trainers_adapters_have_no_home() -> None:
    made = placement("x", "y")
    for name in "abc":
        place(made, name)
    made.begin("a", 1, 500)
    assert made.remove_trainer("x") == ("a", "c")
    assert (made.trainers, made.home("a"), made.has_work) == (("y",), None, False)
    assert place(made, "a") == "y"
    made.add_trainer("x")
    assert made.load_tokens("x") == 0


@dataclass
class Oracle:
    """Everything is looked up afresh."""

    homes: dict[str, str] = field(default_factory=dict)
    work: dict[tuple[str, int], int] = field(default_factory=dict)

    def load(self, trainer: str) -> int:
        return sum(size for (adapter, _), size in self.work.items() if self.homes[adapter] == trainer)

    def choose(self, adapter: str, trainers: tuple[str, ...]) -> str:
        least = min(trainers, key=lambda trainer: (self.load(trainer), [*self.homes.values()].count(trainer)))
        home = self.homes.get(adapter)
        if home is None:
            return least
        is_busy = any(name == adapter for name, _ in self.work)
        return home if is_busy or self.load(home) - self.load(least) <= MOVE_TOKENS else least

    def forget(self, adapter: str) -> None:
        self.work = {key: size for key, size in self.work.items() if key[0] != adapter}
        self.homes.pop(adapter, None)


NAMES = st.sampled_from("abcde")
STEPS = st.lists(st.tuples(st.sampled_from(("begin", "end", "leave", "lose")), NAMES, st.integers(0, 3), st.integers(0, 400)))


@given(STEPS)
def test_it_decides_as_the_oracle_does(steps: list[tuple[str, str, int, int]]) -> None:
    made, oracle = placement("x", "y", "z"), Oracle()
    for action, adapter, call, size in steps:
        if action == "begin":
            chosen = oracle.choose(adapter, made.trainers)
            assert made.choose(adapter) == chosen
            if oracle.homes.get(adapter) != chosen:
                made.settle(adapter, chosen)
                oracle.forget(adapter)
                oracle.homes[adapter] = chosen
            made.begin(adapter, call, size)
            oracle.work[adapter, call] = size
        elif action == "end":
            made.end(adapter, call)
            oracle.work.pop((adapter, call), None)
        elif action == "leave":
            made.leave(adapter)
            oracle.forget(adapter)
        else:
            lost = made.remove_trainer("x")
            assert set(lost) == {name for name, home in oracle.homes.items() if home == "x"}
            for name in lost:
                oracle.forget(name)
            made.add_trainer("x")
        assert [made.load_tokens(trainer) for trainer in "xyz"] == [oracle.load(trainer) for trainer in "xyz"]
        assert made.has_work == bool(oracle.work)
