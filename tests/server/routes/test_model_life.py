"""Unloading a model, refused custom losses, and the key that asks."""

import pytest
import tinker

from tests.server.routes.owner import make_datum, make_owner, rest, train
from tests.server.server_process import ServerProcess


def test_an_unloaded_model_takes_no_calls_and_keeps_its_checkpoints(server: ServerProcess) -> None:
    tenant = server.tenant()
    model = train(server, tenant.key)
    path = model.save_state("a").result().path
    with server.http(tenant.key) as http, server.http() as other:
        assert other.post("/unload_model", json={"model_id": model.model_id}).status_code == 404
        answer = http.post("/unload_model", json={"model_id": model.model_id})
        assert answer.json() == {"model_id": model.model_id, "type": "unload_model"}
    with pytest.raises(tinker.TinkerError):
        model.forward_backward([make_datum()], "cross_entropy").result()
    assert rest(server, tenant.key).get_weights_info_by_tinker_path(path).result().lora_rank == 4


def test_custom_losses_are_refused_with_a_way_out(server: ServerProcess) -> None:
    body = {"session_id": "s", "custom_loss_seq_id": 0, "name": "mine", "inputs": [], "graph": {}}
    with server.http() as http:
        answer = http.post("/create_custom_loss", json=body)
    assert answer.status_code == 422
    assert "forward_backward_custom" in answer.json()["detail"]


def test_a_key_tells_of_itself_and_can_end_itself(server: ServerProcess) -> None:
    tenant = server.tenant()
    with server.http(tenant.key) as http:
        told = http.get("/auth/apikey/me").json()
        assert f"{told['key_id']:012x}" in tenant.key
        assert told["details"] == {"org_details": {"name": tenant.tenant_id}, "user_details": {"email": tenant.tenant_id}}
        assert http.delete("/auth/apikey/me").status_code == 204
        assert http.get("/auth/apikey/me").status_code == 401


def test_every_route_wants_a_key(server: ServerProcess) -> None:
    owner = make_owner(server)
    with server.http(None) as http:
        for method, path in [
            ("GET", "/training_runs"),
            ("GET", f"/training_runs/{owner.run_id}"),
            ("GET", f"/training_runs/{owner.run_id}/checkpoints"),
            ("GET", "/checkpoints"),
            ("DELETE", f"/training_runs/{owner.run_id}/checkpoints/weights/first"),
            ("GET", f"/training_runs/{owner.run_id}/checkpoints/external_weights/first/external_weights_urls"),
            ("GET", "/sessions"),
            ("GET", f"/sessions/{owner.session_id}"),
            ("GET", "/audit"),
            ("GET", "/billing/usage/checkpoints/current"),
            ("GET", "/auth/apikey/me"),
        ]:
            assert http.request(method, path).status_code == 401, path
    with server.http(owner.key) as http:
        unknown = http.delete(f"/training_runs/{owner.run_id}/checkpoints/no_weights/first")
        assert (unknown.status_code, "kind of checkpoint" in unknown.json()["detail"]) == (404, True)
        quoted = owner.run_id.replace(":", "%3A")
        assert http.delete(f"/training_runs/{quoted}/checkpoints/weights%2Ffirst").status_code == 204
