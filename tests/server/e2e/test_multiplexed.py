"""Three base models of one server over two worker groups: two share a process, whose device has not room for both."""

import re
from collections.abc import Iterator

import httpx
import psutil
import pytest

from plait.models.tiny import make_tiny_model
from tests.server.e2e.test_bases import sampled, train, training
from tests.server.server_process import ALIAS, ServerProcess, running_server

DEVICE_BYTES = 14_000_000
FURTHER = ("small", "smaller")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("multiplexed")
    further = []
    for seed, name in enumerate(FURTHER):
        path = make_tiny_model(folder / name, vocab_size=320, seed=seed)
        further.append(f'{{ name = "{name}", path = "{path}", dtype = "float32", device = "cpu", max_context_tokens = 128 }}')
    settings = {
        "MODELS": f"[{', '.join(further)}]", "WORKERS__LAYOUT": "multiplexed", "WORKERS__DEVICE_BYTES": DEVICE_BYTES,
        "WORKERS__GROUPS": 2,
    }  # fmt: skip
    with running_server(folder / "server", **settings) as process:
        yield process


def test_models_of_three_bases_train_and_sample_at_two_groups(server: ServerProcess) -> None:
    tenant = server.tenant()
    service = server.client_for(tenant.key)
    clients = [training(service, name) for name in (ALIAS, *FURTHER)]
    for _ in range(2):
        for client in clients:
            train(client)
    samplers = [client.save_weights_and_get_sampling_client().result() for client in clients]
    first = [sampled(sampler) for sampler in samplers]
    assert [sampled(sampler) for sampler in samplers] == first
    workers = [child for child in psutil.Process(server.pid).children() if "plait.cluster.groups.group_worker" in child.cmdline()]
    assert len(workers) == 2
    page = httpx.get(f"{server.url}/metrics", timeout=120).text
    switches = [float(count) for count in re.findall(r'name="group_switches"[^}]*} ([0-9.]+)', page)]
    assert max(switches) >= 2, page
    groups = re.findall(r'plait_model_group{base_model="([^"]+)",group="([^"]+)"} 1.0', page)
    assert [group for _, group in groups] == ["group-0", "group-1", "group-1"], "each started where most room was left"
    assert [name for name, _ in groups][1:] == list(FURTHER)
    assert sorted(re.findall(r'plait_group_deployments{group="([^"]+)"} ([0-9.]+)', page)) == [
        ("group-0", "2.0"),
        ("group-1", "4.0"),
    ]
    assert all(float(share) > 0 for share in re.findall(r'plait_group_busy_share{group="[^"]+"} ([0-9.e-]+)', page))
    server.close_clients()
