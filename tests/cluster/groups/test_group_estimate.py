"""What a dry run says of multiplexed workers, against what they really take."""

from pathlib import Path
from typing import Any

from plait.cluster.groups.group_estimate import group_shortages, occupants
from plait.cluster.messages import ROLLOUT, TRAIN
from plait.config.run import RunSettings
from plait.models.hf_config import read_config
from tests.cluster.groups.hosts import DrivenHost, model_of
from tests.cluster.groups.test_group_host import opened
from tests.runs import full_task, tiny_task


def settings(folder: Path, training: str = "lora", **workers: Any) -> RunSettings:
    task = full_task("a") if training == "full" else tiny_task("a")
    return RunSettings.model_validate(
        {
            "model": {"path": str(model_of(folder, 0)), "dtype": "float32"},
            "engine": {"slot_tokens": 512, "pool_tokens": 512},
            "workers": {"layout": "multiplexed", "device_bytes": 1 << 40, **workers},
            "tasks": [task],
        }
    )


def test_it_is_nearly_what_they_take(tmp_path: Path) -> None:
    adapters, full = (occupants(settings(tmp_path, training), read_config(model_of(tmp_path, 0))) for training in ("lora", "full"))
    host = DrivenHost(tmp_path)
    for role in (ROLLOUT, TRAIN):
        host.add(role, 0, (role,))
    opened(host, TRAIN, "m", "full")
    rollout, train = (host.host.states[role] for role in (ROLLOUT, TRAIN))
    assert full[TRAIN].parked == train.parked_bytes
    assert 0.8 < full[TRAIN].on_device / train.num_bytes <= 1.01
    assert 0.7 < adapters[ROLLOUT].on_device / rollout.num_bytes <= 1.01


def test_what_does_not_fit_is_told_with_its_remedy(tmp_path: Path) -> None:
    models = {name: read_config(model_of(tmp_path, 0)) for name in settings(tmp_path).used_models}
    assert group_shortages(settings(tmp_path), models) == []
    told = group_shortages(settings(tmp_path, device_bytes=1000), models)
    assert len(told) == 2
    assert all("workers.device_bytes = 1000 has no room for" in one for one in told)
    size = max(one.on_device for one in occupants(settings(tmp_path, "full"), next(iter(models.values()))).values())
    tight = settings(tmp_path, "full", device_bytes=size, host_bytes=1000)
    (below,) = group_shortages(tight, models)
    assert "workers.host_bytes = 1000 and workers.disk_bytes = 0" in below
    assert group_shortages(settings(tmp_path, "full", device_bytes=size, host_bytes=1000, disk_bytes=100 * size), models) == []
