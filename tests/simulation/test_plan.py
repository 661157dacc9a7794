"""Plans: the smallest cluster really is, and sharing needs no more devices than isolation."""

import pytest

from plait.simulation.job_results import simulate_system
from plait.simulation.job_scenario import JobScenario
from plait.simulation.load_scenario import parse_scenario
from plait.simulation.plan import Wish, deciding, on_accelerator, plan_system, total_slowdowns
from plait.simulation.results import SystemResult, WorkRow
from tests.simulation.scenarios import JOBS

SCENARIO = parse_scenario(JOBS)
assert isinstance(SCENARIO, JobScenario)


def slowdown_on(num_devices: int, number: int) -> float | None:
    assert isinstance(SCENARIO, JobScenario)
    cluster = SCENARIO.cluster.model_copy(update={"devices": num_devices})
    changed = SCENARIO.model_copy(update={"cluster": cluster})
    result = simulate_system(changed, SCENARIO.systems[number], 0, False)
    found = deciding(result, 1.0, {work.name: 1.3 for work in result.works})
    return None if found is None else found.slowdown


def test_it_keeps_the_bound_and_a_node_less_does_not() -> None:
    assert isinstance(SCENARIO, JobScenario)
    isolated, packed = (plan_system(SCENARIO, system, Wish(1.3), 0) for system in SCENARIO.systems)
    for number, found in enumerate((isolated, packed)):
        assert found.num_devices is not None
        assert found.worst_slowdown == slowdown_on(found.num_devices, number)
        assert (found.worst_slowdown or 9) <= 1.3
        below = slowdown_on(found.num_devices - 8, number) if found.num_devices > 16 else None
        assert below is None or below > 1.3
    assert (packed.num_devices or 0) <= (isolated.num_devices or 0)


def test_a_bound_that_nothing_keeps_is_said() -> None:
    assert isinstance(SCENARIO, JobScenario)
    scenario = SCENARIO.model_copy(update={"switch_s": 1000.0})
    found = plan_system(scenario, scenario.systems[0], Wish(1.0), 0)
    assert found.num_devices is None or (found.worst_slowdown or 9) <= 1.0


def test_without_a_wish_each_job_has_its_own_bound() -> None:
    assert isinstance(SCENARIO, JobScenario)
    system, job = SCENARIO.systems[1], SCENARIO.jobs[0]
    strict = SCENARIO.model_copy(update={"jobs": (job.model_copy(update={"slo": 1.02}),)})
    own = plan_system(strict, system, Wish(), 0)
    assert own == plan_system(strict, system, Wish(1.02), 0) != plan_system(strict, system, Wish(3.0), 0)


def test_jobs_have_the_time_that_they_take_and_no_node_fails() -> None:
    assert isinstance(SCENARIO, JobScenario)
    cut = SCENARIO.model_copy(update={"until_s": 60.0})
    assert plan_system(cut, cut.systems[0], Wish(1.3), 0) == plan_system(SCENARIO, SCENARIO.systems[0], Wish(1.3), 0)


def test_on_slower_devices_jobs_take_longer() -> None:
    assert isinstance(SCENARIO, JobScenario)
    old, new = SCENARIO.jobs[0], on_accelerator(SCENARIO, "A100").jobs[0]
    assert new.rollout.seconds == old.rollout.seconds * 3.35e12 / 2.039e12
    assert new.train.seconds == old.train.seconds * 989 / 312


def result(*times_s: tuple[float, float, float | None, float]) -> SystemResult:
    """Of jobs: arrival, start, end, slowdown since the start."""
    works = tuple(WorkRow(str(n), "k", arrival, start, end, 1, slow) for n, (arrival, start, end, slow) in enumerate(times_s))
    return SystemResult("s", 1000.0, {}, 1.0, (), (), {}, works)


def test_waiting_counts_and_the_share_is_of_all_jobs() -> None:
    """Alone 100 s each: 1.5 times as long from arrival, 2.0 and 4.0; one does not end."""
    found = result((0.0, 0.0, 150.0, 1.5), (50.0, 100.0, 250.0, 1.5), (0.0, 300.0, 400.0, 1.0), (0.0, 0.0, None, 1.0))
    assert total_slowdowns(found) == {"0": pytest.approx(1.5), "1": pytest.approx(2.0), "2": pytest.approx(4.0)}
    bounds = dict.fromkeys("0123", 1.0)
    for share, slowdown in ((0.01, 1.5), (0.25, 1.5), (0.26, 2.0), (0.5, 2.0), (0.7, 4.0), (0.75, 4.0)):
        one = deciding(found, share, bounds)
        assert one is not None
        assert one.slowdown == pytest.approx(slowdown)
    assert deciding(found, 0.76, bounds) is None


def test_a_bound_that_anything_keeps_needs_the_devices_of_the_largest_job() -> None:
    assert isinstance(SCENARIO, JobScenario)
    found = plan_system(SCENARIO, SCENARIO.systems[0], Wish(1e6), 0)
    assert found.num_devices == min(found.tried) == 16
    assert max(found.tried) <= 4 * 16, "and no more than all jobs at once"
