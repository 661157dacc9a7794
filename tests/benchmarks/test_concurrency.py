import pytest

from benchmarks.concurrency import ADAPTIVE, headlines_of, row_of, run_once
from benchmarks.concurrency_loads import LOADS, Clients, Load, Phase
from benchmarks.concurrency_run import Outcome, make_limit
from benchmarks.engine_systems import PlaitEngine
from plait.models.tiny import make_tiny_model

TWO_PHASES = Load("two", (Phase((Clients(5, 3),), 0.5), Phase((Clients(2, 200),), 0.5)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PlaitEngine:
    return PlaitEngine(make_tiny_model(tmp_path_factory.mktemp("model")), "float32")


@pytest.mark.parametrize("setting", ["1", "4", ADAPTIVE])
def test_a_load_is_served_at_any_limit(model: PlaitEngine, setting: str) -> None:
    outcome = run_once(model, TWO_PHASES, setting, 0.6)
    assert outcome.num_tokens >= 3 * len(outcome.latencies_s) > 0
    assert outcome.mean_limit == pytest.approx(32 if setting == ADAPTIVE else int(setting))
    assert outcome.median_latency_s is not None


def test_a_limit_holds(model: PlaitEngine) -> None:
    one, four = (run_once(model, Load("one", (Phase((Clients(8, 50),)),)), setting, 0.3) for setting in ("1", "4"))
    assert one.median_latency_s is not None
    assert four.num_tokens > one.num_tokens


def test_phases_follow_each_other() -> None:
    for load in LOADS:
        assert sum(phase.share for phase in load.phases) == pytest.approx(1)
        assert load.phase_at(0.0) is load.phases[0]
        assert load.phase_at(1.0) is load.phases[-1]


def test_headlines_are_of_the_worst_load() -> None:
    def row(load: str, setting: str, tokens: int) -> dict[str, object]:
        return row_of("tiny", Load(load, ()), setting, [Outcome(1.0, 1, [1.0]), Outcome(1.0, tokens, [1.0])])

    speeds = {"a": {"1": 50, "8": 100, ADAPTIVE: 98}, "b": {"1": 100, "8": 50, ADAPTIVE: 90}}
    headlines = headlines_of([row(load, setting, speed) for load, of in speeds.items() for setting, speed in of.items()])
    of_best = headlines["adaptive of the best fixed"]
    assert (of_best["value"], of_best["met"]) == (pytest.approx(0.9), False)
    assert "tiny, b, against 1 rows" in of_best["note"]
    assert headlines["adaptive of the worst fixed"]["value"] == pytest.approx(1.8)
    assert headlines["adaptive of the best single fixed"]["value"] == pytest.approx((98 * 90 / 5000) ** 0.5)


def test_the_controller_starts_as_in_a_run() -> None:
    assert make_limit(ADAPTIVE).limit == 32
    assert make_limit("4").limit == 4
