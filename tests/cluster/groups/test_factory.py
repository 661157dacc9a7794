"""Settings of workers that share a device."""

from pathlib import Path
from typing import Any

import pytest

from plait.cluster.configurations import configurations
from plait.cluster.executors.carrier import WorkerNeeds
from plait.cluster.executors.ray_executor import RayExecutor
from plait.cluster.groups.factory import WorkerFactory
from plait.cluster.groups.grouped_workers import GroupedWorkers
from plait.cluster.groups.shared_training import SharedTraining
from plait.config.checks import check_settings
from plait.config.run import RunSettings
from tests.runs import tiny_task


def settings(**workers: Any) -> RunSettings:
    return RunSettings.model_validate({"workers": workers, "tasks": [tiny_task("a")]})


@pytest.mark.parametrize(
    ("workers", "problem"),
    [
        ({"layout": "multiplexed"}, "set workers.device_bytes"),
        ({"device_bytes": 1000}, 'workers.device_bytes has no effect with workers.layout = "split"'),
        ({"disk_bytes": 1000}, 'workers.disk_bytes has no effect with workers.layout = "split"'),
        (
            {"layout": "multiplexed", "device_bytes": 1000, "disk_bytes": 9},
            "workers.disk_bytes = 9 is for what main memory has no room",
        ),
        (
            {"layout": "multiplexed", "device_bytes": 1000, "train_workers": 2},
            "workers.train_workers = 2 needs processes of their own",
        ),
        (
            {"layout": "multiplexed_training", "device_bytes": 1000, "train_workers": 2},
            "workers.train_workers = 2 needs processes of their own",
        ),
        ({"layout": "multiplexed_training"}, 'workers.layout = "multiplexed_training" shares out what the device has'),
        ({"groups": 2}, 'workers.groups has no effect with workers.layout = "split": remove it, or choose "multiplexed"'),
        (
            {"layout": "multiplexed", "device_bytes": 1000, "groups": 3},
            "workers.groups = 3 leaves groups without work where 1 base model is served: lower it to 1",
        ),
        (
            {"layout": "multiplexed", "device_bytes": 1000, "placement": "pack"},
            'workers.placement = "pack" has no effect with one group of workers: remove it, or raise workers.groups',
        ),
        (
            {"max_slowdown": 2.0},
            "workers.max_slowdown = 2.0 has no effect with one group of workers: remove it, or choose",
        ),
    ],
)
def test_what_does_not_go_together_is_told(workers: dict[str, Any], problem: str) -> None:
    assert any(problem in told for told in check_settings(settings(**workers)))


@pytest.mark.parametrize("order", ["hrrs", "fifo", "round_robin", "least_recently_served", "shortest_first"])
def test_the_settings_decide_who_makes_the_workers(order: str) -> None:
    chosen = settings(layout="multiplexed", device_bytes=1000, order=order)
    factory = WorkerFactory(chosen.workers, "cpu")
    make = factory.of("model")
    assert make is not None
    made = make(configurations(chosen, "path", 1), 0, *[lambda *_: None] * 4)
    assert isinstance(made, GroupedWorkers)
    assert made.names == ("rollout", "train")
    assert factory.groups is not None
    assert factory.groups.of("model/train") is factory.groups.of("other/rollout")
    assert WorkerFactory(settings().workers, "cpu").of("model") is None


def test_rollouts_may_keep_processes_of_their_own() -> None:
    chosen = settings(layout="multiplexed_training", device_bytes=1000, rollout_engines=2, rollout_threads=3, train_threads=2)
    assert not [told for told in check_settings(chosen) if "workers" in told]
    factory = WorkerFactory(chosen.workers, "cpu")
    made = [make(configurations(chosen, "path", 1), 0, *[lambda *_: None] * 4) for name in "ab" if (make := factory.of(name))]
    for workers in made:
        assert isinstance(workers, SharedTraining)
        assert workers.names == ("rollout-0", "rollout-1", "train")
        assert workers.engine_names == workers.rollouts.names
        assert workers.moving_engines == ()
        assert workers.training.names == ("train",)
    assert factory.groups is not None
    (group,) = factory.groups.groups.values()
    assert group.settings.threads == 2
    assert factory.groups.of("a/train") is factory.groups.of("b/train")


@pytest.mark.parametrize(("layout", "threads"), [("multiplexed", 3), ("multiplexed_training", 2)])
def test_groups_are_actors_with_the_processors_that_they_use(layout: str, threads: int) -> None:
    chosen = settings(layout=layout, device_bytes=1000, executor="ray", train_threads=2)
    assert not [told for told in check_settings(chosen) if "workers" in told]
    groups = WorkerFactory(chosen.workers, "cpu").groups
    assert groups is not None
    executor = groups._executor
    assert isinstance(executor, RayExecutor)
    assert executor._needs == {"group": WorkerNeeds(threads)}


def test_a_bound_on_slowdown_is_of_one_base_model_or_of_all() -> None:
    task, other = tiny_task("a", model="small"), tiny_task("b", model="large")
    models = {"model": {"name": "small", "path": "x", "max_slowdown": 1.5}, "models": [{"name": "large", "path": "y"}]}
    workers = {"layout": "multiplexed", "device_bytes": 1000, "groups": 2, "max_slowdown": 1.3}
    chosen = RunSettings.model_validate({**models, "workers": workers, "tasks": [task, other]})
    assert not [told for told in check_settings(chosen) if "slowdown" in told or "groups" in told]
    factory = WorkerFactory(chosen.workers, "cpu")
    assert factory.groups is not None
    assert list(factory.groups.groups) == ["group-0", "group-1"]
    bounds = []
    for name in chosen.model_names:
        make = factory.of(name, chosen.of_model(name).model.max_slowdown)
        assert make is not None
        made = make(configurations(chosen, "path", 1), 0, *[lambda *_: None] * 4)
        assert isinstance(made, GroupedWorkers)
        bounds.append(made.max_slowdown)
    assert bounds == [1.5, 1.3]
    single = chosen.model_copy(update={"workers": chosen.workers.model_copy(update={"groups": 1})})
    problem = "model.max_slowdown = 1.5 has no effect with one group of workers: remove it, or raise workers.groups"
    assert problem in check_settings(single)


def test_what_main_memory_has_no_room_for_has_a_folder_of_its_own(tmp_path: Path) -> None:
    chosen = settings(layout="multiplexed", device_bytes=1000, host_bytes=500, disk_bytes=2000)
    assert not [told for told in check_settings(chosen) if "bytes" in told]
    groups = WorkerFactory(chosen.workers, "cpu", tmp_path).groups
    assert groups is not None
    (group,) = groups.groups.values()
    assert (group.settings.host_bytes, group.settings.disk_bytes) == (500, 2000)
    assert Path(group.settings.folder).parent == tmp_path
