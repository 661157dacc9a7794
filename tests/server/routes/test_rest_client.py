"""Every public method of the SDK's RestClient and AdminClient, against a real server."""

import asyncio
import inspect
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import tinker
from tinker import types

from plait.server.database.database import Database
from plait.server.database.tables import Checkpoint
from tests.server.routes.owner import Owner, admin, make_owner, rest, train
from tests.server.server_process import ServerProcess

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::tinker.lib.experimental.ExperimentalWarning")


@pytest.fixture(scope="module")
def owner(_session_server: ServerProcess) -> Owner:
    return make_owner(_session_server)


@pytest.fixture(scope="module")
def stranger(_session_server: ServerProcess) -> str:
    return _session_server.tenant().key


def paths(response: types.CheckpointsListResponse) -> set[str]:
    return {checkpoint.tinker_path for checkpoint in response.checkpoints}


def is_not_found(call: Callable[[], Any]) -> bool:
    with pytest.raises(tinker.NotFoundError):
        call()
    return True


# ---- training runs


def test_training_run(server: ServerProcess, owner: Owner) -> None:
    client = rest(server, owner.key)
    run = client.get_training_run(owner.run_id).result()
    assert (run.training_run_id, run.base_model, run.model_owner) == (owner.run_id, server.models[0], owner.tenant_id)
    assert (run.is_lora, run.lora_rank, run.corrupted) == (True, 4, False)
    assert run.user_metadata == {"renderer_name": "role_colon"}
    assert run.last_checkpoint is not None
    assert run.last_sampler_checkpoint is not None
    assert (run.last_checkpoint.tinker_path, run.last_sampler_checkpoint.tinker_path) == (owner.training, owner.sampler)
    assert abs((datetime.now(UTC) - run.last_request_time).total_seconds()) < 3600
    assert client.get_training_run_by_tinker_path(owner.sampler).result() == run


def test_training_runs_by_page_and_project(server: ServerProcess) -> None:
    tenant = server.tenant()
    models = [train(server, tenant.key).model_id for _ in range(3)]
    client = rest(server, tenant.key)
    pages = [client.list_training_runs(limit=2, offset=offset).result() for offset in (0, 2, 4)]
    assert [[run.training_run_id for run in page.training_runs] for page in pages] == [models[:0:-1], models[:1], []]
    assert {(page.cursor.total_count, page.cursor.limit) for page in pages} == {(3, 2)}
    client.assign_session_project(models[1].partition(":")[0], "second").result()
    of_project = client.list_training_runs(project_id="second").result()
    assert [run.training_run_id for run in of_project.training_runs] == [models[1]]
    assert client.list_training_runs(project_id="none", access_scope="accessible").result().training_runs == []


# ---- checkpoints


def test_checkpoints_of_run_and_of_tenant(server: ServerProcess, owner: Owner) -> None:
    client = rest(server, owner.key)
    of_run = client.list_checkpoints(owner.run_id).result()
    assert paths(of_run) >= {owner.training, owner.sampler, owner.external}
    by_path = {checkpoint.tinker_path: checkpoint for checkpoint in of_run.checkpoints}
    training = by_path[owner.training]
    assert (training.checkpoint_id, training.checkpoint_type, training.public) == ("weights/first", "training", False)
    assert training.user_metadata == {"step": "1"}
    assert training.size_bytes is not None
    assert training.size_bytes > by_path[owner.sampler].size_bytes  # type: ignore[operator]
    assert by_path[owner.external].checkpoint_id == "external_weights/first"
    first, second = (client.list_user_checkpoints(limit=2, offset=offset).result() for offset in (0, 2))
    assert len(first.checkpoints) == 2
    assert first.cursor is not None
    assert first.cursor.total_count >= 3
    assert not paths(first) & paths(second)


def test_weights_info(server: ServerProcess, owner: Owner) -> None:
    info = rest(server, owner.key).get_weights_info_by_tinker_path(owner.training).result()
    assert (info.base_model, info.is_lora, info.lora_rank) == (server.models[0], True, 4)
    assert (info.train_attn, info.train_mlp, info.train_unembed) == (True, False, True)


def test_names_with_signs_that_addresses_must_quote(server: ServerProcess, owner: Owner) -> None:
    model = train(server, owner.key)
    name = "step 1:a=b+c@d"
    path = model.save_state(name).result().path
    export = model.save_weights_external(name).result().path
    client = rest(server, owner.key)
    client.publish_checkpoint_from_tinker_path(path).result()
    urls = client.get_external_weights_urls(export).result().urls
    assert urllib.request.urlopen(urls["adapter_config.json"]).read().startswith(b"{")
    client.delete_checkpoint(model.model_id, f"weights/{name}").result()
    assert paths(client.list_checkpoints(model.model_id).result()) == {export}


def test_publishing_opens_a_checkpoint_and_nothing_else(server: ServerProcess, owner: Owner, stranger: str) -> None:
    mine, theirs = rest(server, owner.key), rest(server, stranger)
    assert is_not_found(lambda: theirs.get_weights_info_by_tinker_path(owner.training).result())
    for _ in range(2):
        mine.publish_checkpoint_from_tinker_path(owner.training).result()
    assert theirs.get_weights_info_by_tinker_path(owner.training).result().lora_rank == 4
    assert paths(theirs.list_checkpoints(owner.run_id).result()) == {owner.training}
    assert owner.training not in paths(theirs.list_user_checkpoints().result())
    run = theirs.get_training_run(owner.run_id, access_scope="accessible").result()
    assert (run.last_checkpoint is not None, run.last_sampler_checkpoint) == (True, None)
    assert run.user_metadata == {"renderer_name": "role_colon"}
    resumed = server.client_for(stranger).create_training_client_from_state(owner.training).result()
    assert resumed.get_info().model_id != owner.run_id
    assert is_not_found(lambda: theirs.get_training_run(owner.run_id).result())
    assert is_not_found(lambda: theirs.delete_checkpoint_from_tinker_path(owner.training).result())
    assert is_not_found(lambda: theirs.unpublish_checkpoint_from_tinker_path(owner.training).result())
    for _ in range(2):
        mine.unpublish_checkpoint_from_tinker_path(owner.training).result()
    assert is_not_found(lambda: theirs.list_checkpoints(owner.run_id).result())
    assert is_not_found(lambda: theirs.get_training_run(owner.run_id, access_scope="accessible").result())


def test_ttl_moves_no_bytes(server: ServerProcess, owner: Owner) -> None:
    client = rest(server, owner.key)
    folder = Path(checkpoint_row(server, owner.sampler).folder)
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}

    def expires_at() -> datetime | None:
        return {c.tinker_path: c.expires_at for c in client.list_checkpoints(owner.run_id).result().checkpoints}[owner.sampler]

    assert expires_at() is None
    client.set_checkpoint_ttl_from_tinker_path(owner.sampler, 7200).result()
    expires = expires_at()
    assert expires is not None
    assert abs(expires - datetime.now(UTC) - timedelta(seconds=7200)) < timedelta(seconds=60)
    client.set_checkpoint_ttl_from_tinker_path(owner.sampler, None).result()
    assert expires_at() is None
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before
    with pytest.raises(tinker.UnprocessableEntityError, match="ttl_seconds"):
        client.set_checkpoint_ttl_from_tinker_path(owner.sampler, 5).result()


def checkpoint_row(server: ServerProcess, path: str) -> Checkpoint:
    database = Database.open(f"sqlite:///{server.folder / 'data' / 'plait.db'}")
    try:
        row = database.submit(lambda session: session.get(Checkpoint, path)).result(60)
        assert row is not None
        return row
    finally:
        database.stop()


def expire(server: ServerProcess, path: str) -> None:
    """As if its time had come."""
    database = Database.open(f"sqlite:///{server.folder / 'data' / 'plait.db'}")
    try:
        database.submit(lambda session: setattr(session.get(Checkpoint, path), "expires_s", time.time() - 1.0)).result(60)
    finally:
        database.stop()


def test_what_has_expired_is_gone(server: ServerProcess, owner: Owner) -> None:
    client, model = rest(server, owner.key), train(server, owner.key)
    path = model.save_weights_external("brief", ttl_seconds=3600).result().path
    url = client.get_external_weights_urls(path).result().urls["adapter_config.json"]
    folder = Path(checkpoint_row(server, path).folder)
    expire(server, path)
    assert client.list_checkpoints(model.model_id).result().checkpoints == []
    assert is_not_found(lambda: client.get_weights_info_by_tinker_path(path).result())
    assert is_not_found(lambda: client.set_checkpoint_ttl_from_tinker_path(path, 7200).result())
    assert status_of(url) == 403
    deadline = time.monotonic() + 120
    while folder.exists():
        assert time.monotonic() < deadline, "its files are still there"
        time.sleep(0.2)


def test_deletion_takes_the_files_too(server: ServerProcess, owner: Owner) -> None:
    client, model = rest(server, owner.key), train(server, owner.key)
    path = model.save_state("a").result().path
    folder = Path(checkpoint_row(server, path).folder)
    client.delete_checkpoint_from_tinker_path(path).result()
    assert not folder.exists()
    assert is_not_found(lambda: client.delete_checkpoint_from_tinker_path(path).result())


# ---- exported weights


def status_of(url: str) -> int:
    try:
        return int(urllib.request.urlopen(url).status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_signed_urls_open_without_a_key_and_only_what_they_name(server: ServerProcess, owner: Owner, stranger: str) -> None:
    client = rest(server, owner.key)
    signed = client.get_external_weights_urls(owner.external).result()
    assert {"adapter_model.safetensors", "adapter_config.json"} <= set(signed.urls)
    assert timedelta(minutes=50) < signed.expires - datetime.now(UTC) <= timedelta(hours=1)
    folder = Path(checkpoint_row(server, owner.external).folder)
    for name, url in signed.urls.items():
        with urllib.request.urlopen(url) as response:
            content = response.read()
            assert content == (folder / name).read_bytes()
            assert int(response.headers["content-length"]) == len(content)
    url = signed.urls["adapter_config.json"]
    assert status_of(url.replace("adapter_config.json", "adapter_model.safetensors")) == 403
    assert status_of(url.replace("expires=", "expires=9")) == 403
    assert status_of(url[:-1] + ("0" if url[-1] != "0" else "1")) == 403
    assert status_of(url.replace("/first/", "/other/")) == 403
    assert status_of(url.replace("adapter_config.json", "..%2F..%2F..%2Fplait.db")) == 403
    assert status_of(url.partition("?")[0]) == 422
    assert is_not_found(lambda: rest(server, stranger).get_external_weights_urls(owner.external).result())
    with pytest.raises(ValueError, match="only accepts external weights"):
        client.get_external_weights_urls(owner.training)
    secret = server.folder / "data" / "url-secret"
    assert secret.stat().st_mode & 0o777 == 0o600


# ---- copies


def test_a_copy_is_a_run_of_its_own_and_outlives_its_source(server: ServerProcess, owner: Owner, stranger: str) -> None:
    model = train(server, owner.key, renderer_name="role_colon")
    source = model.save_state("a").result().path
    mine, theirs = rest(server, owner.key), rest(server, stranger)
    assert is_not_found(lambda: theirs.copy_weights(source, "archive").result())
    mine.publish_checkpoint_from_tinker_path(source).result()
    copied = theirs.copy_weights(source, "archive", ttl_seconds=7200).result()
    assert copied.endswith("/weights/a")
    inode = {Path(checkpoint_row(server, path).folder, "adapter_model.safetensors").stat().st_ino for path in (source, copied)}
    assert len(inode) == 1
    mine.delete_checkpoint_from_tinker_path(source).result()
    run = theirs.get_training_run_by_tinker_path(copied).result()
    assert (run.lora_rank, run.user_metadata) == (4, {"renderer_name": "role_colon"})
    assert run.last_checkpoint is not None
    assert (run.last_checkpoint.tinker_path, run.last_checkpoint.public) == (copied, False)
    assert run.last_checkpoint.expires_at is not None
    assert [run.training_run_id for run in theirs.list_training_runs(project_id="archive").result().training_runs] == [
        run.training_run_id
    ]
    resumed = server.client_for(stranger).create_training_client_from_state_with_optimizer(copied).result()
    assert resumed.save_state("b").result().path
    assert is_not_found(lambda: mine.get_weights_info_by_tinker_path(copied).result())


def test_a_copy_into_a_session_is_made_once(server: ServerProcess, owner: Owner) -> None:
    client = server.client_for(owner.key)
    with server.http(owner.key) as http:
        session_id = client.holder.get_session_id()
        body = {"source_path": owner.training, "session_id": session_id, "model_seq_id": 7}
        answers = [http.post("/copy_weights", json=body) for _ in range(2)]
        assert {answer.json()["tinker_path"] for answer in answers} == {f"tinker://{session_id}:train:7/weights/first"}
        other = http.post("/copy_weights", json=body | {"source_path": owner.sampler})
        assert (other.status_code, "training run" in other.json()["detail"]) == (422, True)
        project = {"source_path": owner.training, "destination_project_id": "p"}
        same = [http.post("/copy_weights", json=project, headers={"X-Idempotency-Key": "k"}) for _ in range(2)]
        assert len({answer.json()["tinker_path"] for answer in same}) == 1
        refused = http.post("/copy_weights", json=project, headers={"X-Tinker-Weights-Access-Token": "t"})
        assert (refused.status_code, "publish" in refused.json()["detail"]) == (422, True)
        assert http.post("/copy_weights", json=body | {"session_id": "none"}).status_code == 404


# ---- sessions


def test_session(server: ServerProcess, owner: Owner) -> None:
    client = rest(server, owner.key)
    session = client.get_session(owner.session_id).result()
    assert (session.training_run_ids, session.sampler_ids) == ([owner.run_id], [])
    assert (session.user_metadata, session.display_name) == ({"purpose": "test"}, "Rest routes")
    assert owner.session_id in client.list_sessions(limit=100).result().sessions
    assert len(client.list_sessions(limit=1, offset=0).result().sessions) == 1
    with pytest.raises(RuntimeError, match="traces of single sessions are not kept"):
        client.export_session_trace(owner.session_id).result()


def test_sampler(server: ServerProcess, owner: Owner, stranger: str) -> None:
    sampling = server.client_for(owner.key).create_sampling_client(model_path=owner.sampler)
    sampler_id = sampling.result()._sampling_session_id
    found = rest(server, owner.key).get_sampler(sampler_id).result()
    assert (found.base_model, found.model_path) == (server.models[0], owner.sampler)
    assert rest(server, owner.key).get_session(sampler_id.partition(":")[0]).result().sampler_ids == [sampler_id]
    assert is_not_found(lambda: rest(server, stranger).get_sampler(sampler_id).result())


def test_search_of_sessions(server: ServerProcess) -> None:
    tenant = server.tenant()
    ids = []
    for number in range(3):
        service = server.client_for(tenant.key, display_name=f"night {number}", user_metadata={"n": str(number)}, project_id="p")
        ids.append(service.holder.get_session_id())
    client = rest(server, tenant.key)

    def found(**conditions: Any) -> list[str]:
        request, seen = types.SessionSearchRequest(**conditions), []
        while True:
            page = client.search_sessions(request).result()
            seen += [session.session_id for session in page.sessions]
            if page.next_cursor is None:
                return seen
            request = request.model_copy(update={"cursor": page.next_cursor})

    assert found() == found(limit=1) == found(limit=2) == ids[::-1]
    assert found(display_name="NIGHT 1") == [ids[1]]
    assert found(user_metadata={"n": "2"}) == [ids[2]]
    assert found(project_ids=["q"]) == []
    assert found(owner={"type": "user", "owner_urns": ["somebody"]}) == []
    assert found(owner={"type": "accessible"}, statuses=[{"type": "active"}]) == ids[::-1]
    with server.http(tenant.key) as http:
        http.post(f"/sessions/{ids[0]}/finish", json={"reason": {"type": "errored"}}).raise_for_status()
    assert found(statuses=[{"type": "client_finished", "reasons": ["errored"]}, {"type": "cancelled"}]) == [ids[0]]
    summary = client.search_sessions(types.SessionSearchRequest(session_id=ids[0])).result().sessions[0]
    assert (summary.owner, summary.project_id, summary.checkpoints_count) == (tenant.tenant_id, "p", 0)
    assert summary.status is not None
    assert summary.status.type == "client_finished"


# ---- accounts


def test_audit_log(server: ServerProcess, owner: Owner, stranger: str) -> None:
    client = rest(server, owner.key)
    client.publish_checkpoint_from_tinker_path(owner.external).result()
    client.unpublish_checkpoint_from_tinker_path(owner.external).result()
    entries = admin(server, owner.key).get_audit_log().result().entries
    events = [entry.event for entry in entries]
    assert {"session_create", "model_create", "checkpoint_create", "checkpoint_publish"} <= set(events)
    published = next(entry for entry in entries if entry.event == "checkpoint_publish" and entry.tinker_path == owner.external)
    assert published.model_id == owner.run_id
    assert owner.key not in str(entries)
    assert str(published.event_details["key_id"]) in owner.key
    checkpoints = admin(server, owner.key).get_audit_log("checkpoints").result().entries
    assert {entry.event.partition("_")[0] for entry in checkpoints} == {"checkpoint"}
    assert admin(server, owner.key).get_audit_log(day=datetime(2020, 1, 1).date()).result().entries == []
    with pytest.raises(tinker.PermissionDeniedError, match="role 'admin'"):
        admin(server, stranger).get_audit_log().result()


def test_use_and_storage(server: ServerProcess, owner: Owner) -> None:
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    client = admin(server, owner.key)
    usage = client.get_billing_usage(start, start + timedelta(hours=3)).result()
    training = [event for event in usage.data if event.event_info.type == "training"]
    assert training
    assert {event.base_model for event in training} == {server.models[0]}
    assert sum(getattr(event.event_info, "token_count", 0) for event in training) >= 11
    with pytest.raises(tinker.UnprocessableEntityError, match="no full hour"):
        client.get_billing_usage(start + timedelta(minutes=5), start + timedelta(hours=1)).result()
    with pytest.raises(tinker.UnprocessableEntityError, match="must be before"):
        client.get_billing_usage(start, start).result()
    storage = client.get_current_checkpoint_storage_usage().result().data
    first = next(item for item in storage if item.project_id == "first")
    assert first.checkpoint_count >= 3
    assert first.size_gigabytes == first.size_bytes / 1e9
    assert client.get_current_checkpoint_storage_usage("none").result().data == []


def test_capabilities_and_identity(server: ServerProcess, owner: Owner) -> None:
    client = rest(server, owner.key)
    assert [model.model_name for model in client.get_server_capabilities().result().supported_models] == list(server.models)
    with pytest.raises(RuntimeError, match="whoami requires JWT auth"):
        client.whoami().result()


# ---- all of them


def arguments_of(owner: Owner) -> dict[str, tuple[Any, ...]]:
    """Of each method that needs any, for a tenant to whom nothing of it belongs."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return {
        "get_training_run": (owner.run_id,),
        "get_training_run_by_tinker_path": (owner.training,),
        "get_weights_info_by_tinker_path": (owner.training,),
        "list_checkpoints": (owner.run_id,),
        "get_external_weights_urls": (owner.external,),
        "delete_checkpoint": (owner.run_id, "weights/first"),
        "delete_checkpoint_from_tinker_path": (owner.training,),
        "copy_weights": (owner.training, "p"),
        "publish_checkpoint_from_tinker_path": (owner.training,),
        "unpublish_checkpoint_from_tinker_path": (owner.training,),
        "set_checkpoint_ttl_from_tinker_path": (owner.training, 7200),
        "get_session": (owner.session_id,),
        "assign_session_project": (owner.session_id, "p"),
        "export_session_trace": (owner.session_id,),
        "get_sampler": (f"{owner.session_id}:sample:0",),
        "get_billing_usage": (start, start + timedelta(hours=1)),
        "search_sessions": (types.SessionSearchRequest(session_id=owner.session_id),),
    }


OPEN = {
    "list_training_runs", "list_user_checkpoints", "list_sessions", "search_sessions", "get_server_capabilities",
    "get_billing_usage", "get_current_checkpoint_storage_usage",
}  # fmt: skip
"""Answer strangers with what is theirs."""


def public_methods() -> list[str]:
    names = [name for name, _ in inspect.getmembers(tinker.RestClient, inspect.isfunction) if not name.startswith("_")]
    return [name for name in names if name.removesuffix("_async") not in ("get_telemetry", "whoami", "get_audit_log")]


@pytest.mark.parametrize("name", public_methods())
def test_strangers_find_nothing(server: ServerProcess, owner: Owner, stranger: str, name: str) -> None:
    plain = name.removesuffix("_async")
    method, values = getattr(rest(server, stranger), name), arguments_of(owner).get(plain, ())

    def call() -> Any:
        return method(*values).result() if name == plain else asyncio.run(method(*values))

    if plain in OPEN:
        assert owner.session_id not in str(call())
    else:
        assert is_not_found(call)
