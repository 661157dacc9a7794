"""Plans: the smallest cluster really is, and sharing needs no more devices than isolation."""

from plait.simulation.job_results import simulate_system
from plait.simulation.job_scenario import JobScenario
from plait.simulation.load_scenario import parse_scenario
from plait.simulation.plan import Wish, deciding, on_accelerator, plan_system
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
