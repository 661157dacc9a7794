"""Two base models of one server that share a worker process, whose device has not room for both."""

import re
from collections.abc import Iterator

import httpx
import psutil
import pytest

from plait.models.tiny import make_tiny_model
from tests.server.e2e.test_bases import sampled, train, training
from tests.server.server_process import ALIAS, ServerProcess, running_server

DEVICE_BYTES = 14_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("multiplexed")
    small = make_tiny_model(folder / "small", vocab_size=320, seed=1)
    models = f'[{{ name = "small", path = "{small}", dtype = "float32", device = "cpu", max_context_tokens = 128 }}]'
    settings = {"MODELS": models, "WORKERS__LAYOUT": "multiplexed", "WORKERS__DEVICE_BYTES": DEVICE_BYTES}
    with running_server(folder / "server", **settings) as process:
        yield process


def test_models_of_two_bases_train_and_sample_by_turns(server: ServerProcess) -> None:
    tenant = server.tenant()
    service = server.client_for(tenant.key)
    clients = [training(service, ALIAS), training(service, "small")]
    for _ in range(2):
        for client in clients:
            train(client)
    samplers = [client.save_weights_and_get_sampling_client().result() for client in clients]
    first = [sampled(sampler) for sampler in samplers]
    assert [sampled(sampler) for sampler in samplers] == first
    workers = [child for child in psutil.Process(server.pid).children() if "plait.cluster.groups.group_worker" in child.cmdline()]
    assert len(workers) == 1
    page = httpx.get(f"{server.url}/metrics").text
    switches = [float(count) for count in re.findall(r'name="group_switches"[^}]*} ([0-9.]+)', page)]
    assert max(switches) >= 2, page
    server.close_clients()
