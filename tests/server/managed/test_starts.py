"""Managed tasks that train a checkpoint further: their tenant's own, by its address, and nothing else."""

from pathlib import Path

from plait.state.records import read_record
from plait.state.start_point import read_start
from tests.server.e2e.data import ADAM, supervised, training_client
from tests.server.managed.managed_server import ManagedServer, TenantClient
from tests.server.managed.task_files import task, task_file


def checkpoint_of(managed: ManagedServer, client: TenantClient) -> str:
    training = training_client(managed.process.client_for(client.key))
    try:
        training.forward_backward([supervised()], "cross_entropy").result()
        training.optim_step(ADAM).result()
        return str(training.save_state("begin").result().path)
    finally:
        managed.process.close_clients()


def beginning(start: str, **changes: object) -> str:
    plain = task("a", steps=1, warm_start={"steps": 0}, start_from=start, **changes)
    if "lora" not in changes:
        del plain["lora"]
    return task_file(plain)


def test_a_checkpoint_is_trained_further_by_its_owner_alone(managed: ManagedServer) -> None:
    ann, bob = managed.tenant(), managed.tenant()
    path = checkpoint_of(managed, ann)
    refused = bob.http.post("/v1/tasks", content=beginning(path))
    assert refused.status_code == 422
    assert "you have no such checkpoint" in refused.text
    other_rank = ann.http.post("/v1/tasks", content=beginning(path, lora={"rank": 3}))
    assert other_rank.status_code == 422
    assert "lora.rank = 3, and the adapter of start_from has " in other_rank.text
    assert not list((managed.process.folder / "data" / "tenants" / bob.tenant_id).rglob("start"))

    run = ann.submit(beginning(path))
    assert ann.wait(run)["state"] == "done", managed.process.tail()
    directory = managed.run_folder(ann, run)
    start, begun = read_start(directory.start_folder("a")), read_record(directory.steps_folder("a"), 0)
    assert start.source == path
    assert begun.adapter_digest == begun.start_digest == start.digest
    assert 'start_from = "tasks/a/start"' in directory.config.read_text()
    assert "/tenants/" not in directory.events.read_text() + directory.config.read_text()


def test_paths_on_the_server_are_refused_before_anything_looks_at_them(managed: ManagedServer, tmp_path: Path) -> None:
    client = managed.tenant()
    for start in (str(tmp_path), "/etc", "runs/x", "~", "http://x", "plait://x"):
        response = client.http.post("/v1/tasks", content=beginning(start))
        assert response.status_code == 422
        assert "only a checkpoint of this server is taken" in response.text
        assert "there is no folder" not in response.text
    malformed = client.http.post("/v1/tasks", content=beginning("tinker://../../etc"))
    assert malformed.status_code == 422
