"""Data that tenants upload, and task files that are refused over HTTP."""

import pytest

from tests.server.managed.managed_server import ManagedServer
from tests.server.managed.task_files import task, task_file

RECORD = {"question": "What is 1 + 1?", "answer": "#### 2"}
SLOW = {"kind": "dataset", "path": "upload:used", "require_stop": False, "delay": {"kind": "fixed", "mean_s": 0.2}}


def test_uploads_are_listed_and_deleted(managed: ManagedServer) -> None:
    ann = managed.tenant()
    for name in ("one.jsonl", "two.jsonl"):
        assert ann.upload(name, [RECORD]).status_code == 201
    assert ann.upload("one.jsonl", [RECORD]).status_code == 422
    listed = ann.http.get("/v1/uploads").json()
    assert ([row["name"] for row in listed["uploads"]], listed["total"]) == (["two.jsonl", "one.jsonl"], 2)
    assert ann.http.delete("/v1/uploads/one.jsonl").status_code == 204
    assert ann.http.delete("/v1/uploads/one.jsonl").status_code == 404
    assert ann.upload("one.jsonl", [RECORD]).status_code == 201
    folder = managed.process.folder / "data" / "tenants" / ann.tenant_id / "uploads"
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"a": 1}\nx', b"\xff", b"[" * 100_000])
def test_what_is_no_jsonl_is_refused(managed: ManagedServer, content: bytes) -> None:
    response = managed.tenant().http.post("/v1/uploads", params={"name": "x"}, content=content)
    assert response.status_code == 422
    assert "JSON" in response.json()["detail"]


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "x" * 200])
def test_names_that_could_be_paths_are_refused(managed: ManagedServer, name: str) -> None:
    assert managed.tenant().upload(name, [RECORD]).status_code == 422


def test_an_upload_in_use_is_not_deleted(managed: ManagedServer) -> None:
    ann = managed.tenant()
    ann.upload("used", [RECORD | {"question": f"What is {n} - {n - 2}?"} for n in range(20)])
    run = ann.submit(task_file(task("a", steps=100, environment=SLOW)))
    refused = ann.http.delete("/v1/uploads/used")
    assert refused.status_code == 422
    assert run in refused.json()["detail"]
    ann.act("cancel", run)
    ann.wait(run)
    assert ann.http.delete("/v1/uploads/used").status_code == 204


def test_a_task_file_with_a_path_or_code_is_refused_by_its_key(managed: ManagedServer) -> None:
    ann = managed.tenant()

    def told(environment: dict[str, object]) -> str:
        response = ann.http.post("/v1/tasks", content=task_file(task("a", environment=environment)))
        assert response.status_code == 422
        return str(response.json()["detail"])

    assert 'tasks[0].environment.path = "/etc/passwd"' in told({"kind": "dataset", "path": "/etc/passwd"})
    assert 'tasks[0].environment.path = "openai/gsm8k"' in told({"kind": "dataset", "path": "openai/gsm8k"})
    assert "tasks[0].environment.function" in told({"kind": "function", "function": "os:system"})
    assert "no such upload" in told({"kind": "dataset", "path": "upload:none"})
    for content in (b"", b"\xff", b"x = [", b"a" * 2**21):
        assert ann.http.post("/v1/tasks", content=content).status_code == 422
    assert ann.http.get("/v1/tasks").json()["total"] == 0


def test_a_tenant_has_no_more_adapters_than_its_quota(managed: ManagedServer) -> None:
    ann = managed.tenant()
    run = ann.submit(task_file(*(task(f"t{index}", steps=100) for index in range(4))))
    refused = ann.http.post("/v1/tasks", content=task_file(task("a")))
    assert refused.status_code == 429
    assert "live_adapters" in refused.json()["detail"]
    ann.act("cancel", run)
    ann.wait(run)
    assert ann.wait(ann.submit(task_file(task("b"))))["state"] == "done"
