"""Two base models of different vocabulary on one server, with the SDK, OpenAI's client and a managed task."""

from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import pytest
import tinker

from plait.models.tiny import make_tiny_model
from tests.server.e2e.data import ADAM, PROMPT, supervised
from tests.server.managed.managed_server import TenantClient
from tests.server.managed.task_files import task, task_file
from tests.server.openai.clients import client_of
from tests.server.server_process import ALIAS, ServerProcess, Tenant, running_server

SMALL_ALIAS = "org/Small"
PARAMS = tinker.SamplingParams(max_tokens=8, seed=3)
BEYOND_SMALL = tinker.ModelInput.from_ints([5, 370, 7])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The first base model has two training processes; the small one has a process in all."""
    folder = tmp_path_factory.mktemp("bases")
    small = make_tiny_model(folder / "small", vocab_size=320, seed=1)
    more = 'dtype = "float32", device = "cpu", max_context_tokens = 128, workers = { layout = "shared" }'
    models = f'[{{ name = "small", path = "{small}", aliases = ["{SMALL_ALIAS}"], {more} }}]'
    with running_server(folder / "server", MODELS=models, WORKERS__TRAIN_WORKERS=2) as process:
        yield process


@pytest.fixture
def tenant(server: ServerProcess) -> Iterator[Tenant]:
    yield server.tenant()
    server.close_clients()


def training(service: tinker.ServiceClient, base_model: str, seed: int = 1) -> tinker.TrainingClient:
    return service.create_lora_training_client(base_model=base_model, rank=4, seed=seed).result()


def train(client: tinker.TrainingClient, length: int = 8) -> None:
    client.forward_backward([supervised(length)], "cross_entropy").result()
    client.optim_step(ADAM).result()


def sampled(sampler: tinker.SamplingClient, prompt: tinker.ModelInput = PROMPT) -> list[int]:
    return list(sampler.sample(prompt, 1, PARAMS).result().sequences[0].tokens)


def trainers(server: ServerProcess) -> list[psutil.Process]:
    """Worker processes that hold a lock of a model's records, in which only those that train do."""
    children = [child for child in psutil.Process(server.pid).children() if "plait.cluster.worker" in child.cmdline()]
    return [child for child in children if any(file.path.endswith(".writer") for file in child.open_files())]


def test_each_model_is_trained_and_sampled_on_its_own_base(server: ServerProcess, tenant: Tenant) -> None:
    service = server.client_for(tenant.key)
    with server.http(tenant.key) as http:
        listed = http.get("/get_server_capabilities").json()["supported_models"]
    lengths = [(model["model_name"], model["max_context_length"]) for model in listed]
    assert lengths == [(str(server.model), 256), (ALIAS, 256), ("small", 128), (SMALL_ALIAS, 128)]

    first, small = training(service, ALIAS), training(service, SMALL_ALIAS)
    for client in (first, small):
        train(client)
        train(client)
    assert (first.get_info().model_name, small.get_info().model_name) == (ALIAS, SMALL_ALIAS)
    samplers = [client.save_weights_and_get_sampling_client().result() for client in (first, small)]
    assert max(sampled(samplers[1])) < 320
    assert sampled(samplers[0], BEYOND_SMALL)
    with pytest.raises(tinker.APIStatusError, match=r"holds token 370; the model has ids 0 to 319"):
        sampled(samplers[1], BEYOND_SMALL)

    with httpx.Client(base_url=server.url, headers={"X-API-Key": tenant.key}, timeout=120) as http:
        rows = {row["base_model"]: row for row in http.get("/v1/usage").json()["usage"]}
        assert rows.keys() == {ALIAS, SMALL_ALIAS}
        assert all(row["trained_tokens"] == 16 and row["sampled_tokens"] for row in rows.values())
    page = httpx.get(f"{server.url}/metrics", timeout=120).text
    assert 'plait_resident_adapters{base_model="small"} 1.0' in page
    assert 'plait_worker_tokens_total{base_model="small",worker="worker"}' in page
    assert f'plait_engine_rows{{base_model="{server.model}",engine="rollout"}}' in page


def test_a_checkpoint_is_loaded_on_its_own_base_alone(server: ServerProcess, tenant: Tenant) -> None:
    service = server.client_for(tenant.key)
    small = training(service, "small")
    train(small)
    path = small.save_state("kept").result().path
    again = service.create_training_client_from_state(path).result()
    assert again.get_info().model_name == "small"
    first = training(service, ALIAS)
    refused = pytest.raises(tinker.RequestFailedError, match=r"is of base model 'small', and cannot be loaded on 'Qwen/Qwen3-8B'")
    with pytest.warns(FutureWarning), refused:
        first.load_state(path).result()
    session = {"session_id": small.model_id.partition(":")[0], "model_seq_id": 99}
    with server.http(tenant.key) as http:
        wrong = http.post("/load_weights", json={**session, "path": path, "optimizer": True, "base_model": ALIAS})
    assert wrong.status_code == 422
    assert "'small'" in wrong.text
    assert ALIAS in wrong.text
    with pytest.raises(tinker.APIStatusError, match=r"'smal' is not served. Did you mean 'small'?"):
        training(service, "smal")


def test_models_train_at_both_trainers_and_go_on_when_one_is_killed(server: ServerProcess, tenant: Tenant) -> None:
    service = server.client_for(tenant.key)
    models = [training(service, ALIAS) for _ in range(3)]
    for _ in range(2):
        passes = [model.forward_backward([supervised(200)], "cross_entropy") for model in models]
        for step in [model.optim_step(ADAM) for model in models]:
            step.result()
        assert len({future.result().metrics["loss:sum"] for future in passes}) == 1
    own = trainers(server)
    assert len(own) >= 2
    waiting = [model.forward_backward([supervised(200)], "cross_entropy") for model in models]
    own[0].kill()
    losses = [future.result().metrics["loss:sum"] for future in waiting]
    assert len(set(losses)) == 1
    for model in models:
        model.optim_step(ADAM).result()
    weights = {str(sampled(model.save_weights_and_get_sampling_client().result())) for model in models}
    assert len(weights) == 1


def test_openai_clients_and_managed_tasks_name_their_base(server: ServerProcess, tenant: Tenant) -> None:
    with client_of(server, tenant.key) as openai:
        assert {model.id for model in openai.models.list()} >= {str(server.model), ALIAS, "small", SMALL_ALIAS}
        for name in (ALIAS, "small"):
            answer = openai.completions.create(model=name, prompt="ab", max_tokens=4, temperature=0, echo=True, logprobs=1)
            assert answer.model == name
            assert answer.choices[0].text.startswith("ab")
    client = TenantClient(server.url, tenant.tenant_id, tenant.key)
    unknown = client.http.post("/v1/tasks", content=task_file(task("a", model="smal")))
    assert unknown.status_code == 422
    assert 'did you mean \\"small\\"?' in unknown.text or 'did you mean "small"?' in unknown.text
    view = client.wait(client.submit(task_file(task("a"), task("b", model=SMALL_ALIAS))))
    assert view["state"] == "done", server.tail()
    assert {each["name"]: each["model"] for each in view["tasks"]} == {"a": str(server.model), "b": "small"}
    usage: dict[str, Any] = {row["base_model"]: row for row in client.http.get("/v1/usage").json()["usage"]}
    assert usage["small"]["trained_tokens"] > 0
    assert usage[str(server.model)]["trained_tokens"] > 0
