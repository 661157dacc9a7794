"""A run's life over HTTP: paused, resumed, cancelled, watched, taken away, and taken up again by a new server."""

import io
import json
import tarfile
import zipfile
from pathlib import Path

import httpx
import pytest
from safetensors.numpy import load

from plait.observe.events import StepCommitted, decode_event
from plait.state.records import ADAPTER_CONFIG_FILE, ADAPTER_FILE
from tests.server.e2e.data import training_client
from tests.server.managed.managed_server import ManagedServer, trained
from tests.server.managed.task_files import task, task_file

LONG = 200
SLOW = {"kind": "calculator", "require_stop": False, "delay": {"kind": "fixed", "mean_s": 0.05}}


def step_of(view: dict, task: str = "a") -> int:
    return next(int(t["step"]) for t in view["tasks"] if t["name"] == task)


def test_a_run_is_paused_and_resumed(managed: ManagedServer) -> None:
    ann = managed.tenant()
    run = ann.submit(task_file(task("a", steps=LONG, environment=SLOW)))
    ann.wait(run, lambda view: step_of(view) >= 2)
    assert ann.act("pause", run).json()["state"] == "paused"
    assert ann.act("pause", run).status_code == 422
    halted = ann.wait(run, lambda view: view["tasks"][0]["phase"] != "training")
    still = step_of(ann.show(run))
    assert still <= step_of(halted) + 1
    assert ann.act("resume", run).json()["state"] == "running"
    ann.wait(run, lambda view: step_of(view) > still + 1)
    assert ann.act("cancel", run).status_code == 200
    view = ann.wait(run)
    assert (view["state"], view["tasks"][0]["state"]) == ("cancelled", "cancelled")
    assert step_of(view) < LONG
    assert ann.act("resume", run).status_code == 422


def test_one_task_of_a_run_is_cancelled_and_the_other_goes_on(managed: ManagedServer) -> None:
    ann = managed.tenant()
    run = ann.submit(task_file(task("a", steps=LONG, environment=SLOW), task("b")))
    ann.wait(run, lambda view: step_of(view) >= 1)
    assert ann.act("cancel", run, task="nothing").status_code == 422
    assert ann.act("cancel", run, task="a").status_code == 200
    view = ann.wait(run)
    assert view["state"] == "done"
    assert {t["name"]: t["state"] for t in view["tasks"]} == {"a": "cancelled", "b": "done"}


def test_events_are_streamed_to_the_end_and_from_any_of_them(managed: ManagedServer) -> None:
    ann = managed.tenant()
    run = ann.submit(task_file(task("a")))
    events = list(ann.events(run))
    assert events[0].kind == "run_started"
    assert [event.kind for event in events[-2:]] == ["run_ended", "end"]
    assert json.loads(events[-1].data) == {"state": "done"}
    steps = [decode_event(event.data.encode()) for event in events if event.kind == "step"]
    assert [step.step for step in steps if isinstance(step, StepCommitted)] == [1, 2, 3, 4, 5]
    assert list(ann.events(run, last_id=events[3].id)) == events[4:]
    after_all = ann.http.get(f"/v1/tasks/{run}/events", headers={"Last-Event-ID": events[-1].id})
    assert after_all.status_code == 204
    assert ann.http.get(f"/v1/tasks/{run}/events", headers={"Last-Event-ID": "7"}).status_code == 422
    assert not [event for event in events if "127.0.0.1" in event.data]


def test_report_and_adapter_are_taken_away(managed: ManagedServer) -> None:
    ann = managed.tenant()
    run = ann.submit(task_file(task("a"), task("b")))
    ann.wait(run)
    report = ann.http.get(f"/v1/tasks/{run}/report")
    assert report.headers["content-type"].startswith("text/html")
    assert "<html" in report.text[:500].lower()
    assert ann.http.get(f"/v1/tasks/{run}/adapter").status_code == 422
    adapter = ann.http.get(f"/v1/tasks/{run}/adapter", params={"task": "a"}).content
    with tarfile.open(fileobj=io.BytesIO(adapter)) as tar:
        files = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]
    assert files.keys() == {ADAPTER_FILE, ADAPTER_CONFIG_FILE}
    assert json.loads(files[ADAPTER_CONFIG_FILE])["r"] == 4
    assert any((tensor != 0).any() for name, tensor in load(files[ADAPTER_FILE]).items() if "lora_B" in name)
    zipped = ann.http.get(f"/v1/tasks/{run}/adapter", params={"task": "a", "format": "zip", "step": 5}).content
    assert zipfile.ZipFile(io.BytesIO(zipped)).read(ADAPTER_FILE) == files[ADAPTER_FILE]
    queries: tuple[dict[str, str | int], ...] = ({"task": "a", "step": 99}, {"task": "c"})
    for query in queries:
        assert ann.http.get(f"/v1/tasks/{run}/adapter", params=query).status_code == 404


def test_what_ends_a_run_at_its_start_is_shown_without_the_servers_paths(managed: ManagedServer) -> None:
    ann = managed.tenant()
    ann.upload("bad.jsonl", [{"question": "1 + 1?", "answer": "two"}])
    run = ann.submit(task_file(task("a", environment={"kind": "dataset", "path": "upload:bad.jsonl"})))
    view = ann.wait(run)
    assert view["state"] == "failed"
    assert "upload:bad.jsonl:1: there is no gold answer" in view["tasks"][0]["cause"]
    assert str(managed.process.folder) not in json.dumps(view)
    assert [event.kind for event in ann.events(run)][-1] == "end"


def test_usage_of_managed_tasks_is_metered(managed: ManagedServer) -> None:
    from plait.server.database.database import Database
    from plait.server.database.usage import total_usage

    ann = managed.tenant()
    ann.wait(ann.submit(task_file(task("a"))))
    managed.process.stop()
    database = Database.open(f"sqlite:///{managed.process.folder / 'data' / 'plait.db'}")
    try:
        usage = database.submit(lambda session: total_usage(session, ann.tenant_id, 0, 2e9)).result()
    finally:
        database.stop()
        managed.process.start()
    used = usage[ann.tenant_id, str(managed.process.model)]
    assert min(used.prompt_tokens + used.cached_tokens, used.sampled_tokens, used.trained_tokens) > 0
    assert used.device_s > 0


def test_a_killed_server_goes_on_with_its_runs_as_they_were(managed: ManagedServer, tmp_path: Path) -> None:
    ann = managed.tenant()
    text = task_file(task("a", steps=12))
    endless = task_file(task("a", steps=LONG))
    run, paused, gone = ann.submit(text), ann.submit(endless), ann.submit(endless)
    ann.wait(paused, lambda view: step_of(view) >= 1)
    assert ann.act("pause", paused).status_code == 200
    assert ann.act("cancel", gone).status_code == 200
    assert ann.wait(gone)["state"] == "cancelled"
    ann.wait(run, lambda view: step_of(view) >= 2)
    managed.process.restart()
    assert ann.wait(run)["state"] == "done"
    assert trained(managed.run_folder(ann, run), "a") == trained(managed.run_alone(tmp_path, text), "a")
    before = ann.show(paused)
    assert before["state"] == "paused"
    assert ann.act("resume", paused).status_code == 200
    ann.wait(paused, lambda view: step_of(view) > step_of(before))
    assert ann.act("cancel", paused).status_code == 200


def test_a_stopped_server_lets_readers_of_events_go_and_they_come_back(managed: ManagedServer) -> None:
    from plait.client.server_link import ServerLink, path_of

    ann = managed.tenant()
    run = ann.submit(task_file(task("a", steps=12, environment=SLOW)))
    steps, restarted = [], False
    for event in ServerLink(managed.process.url, ann.key).events(path_of("tasks", run, "events")):
        if event.kind == "step":
            steps.append(json.loads(event.data)["step"])
            if not restarted:
                restarted = True
                managed.process.stop()
                managed.process.start()
    assert steps == list(range(1, 15))


@pytest.mark.parametrize("signal", ["SIGKILL"])
def test_a_lost_training_worker_changes_nothing(managed: ManagedServer, tmp_path: Path, signal: str) -> None:
    ann = managed.tenant()
    text = task_file(task("a", steps=10))
    training_client(managed.process.client_for(ann.key))  # So that the workers can be told apart.
    workers = managed.process.workers()
    run = ann.submit(text)
    ann.wait(run, lambda view: step_of(view) >= 2)
    for worker in workers:
        worker.kill()
    view = ann.wait(run)
    managed.process.close_clients()
    assert view["state"] == "done", ann.http.get(f"/v1/tasks/{run}/events", params={"follow": "false"}).text
    assert trained(managed.run_folder(ann, run), "a") == trained(managed.run_alone(tmp_path, text), "a")


def test_a_strangers_run_and_upload_are_not_there(managed: ManagedServer) -> None:
    ann, eve = managed.tenant(), managed.tenant()
    ann.upload("mine", [{"question": "1?", "answer": "#### 1"}])
    run = ann.submit(task_file(task("a")))
    answers = [
        eve.http.get(f"/v1/tasks/{run}"),
        eve.http.get(f"/v1/tasks/{run}/events"),
        eve.http.get(f"/v1/tasks/{run}/report"),
        eve.http.get(f"/v1/tasks/{run}/adapter"),
        *(eve.act(action, run) for action in ("pause", "resume", "cancel")),
        eve.http.delete("/v1/uploads/mine"),
    ]
    assert [answer.status_code for answer in answers] == [404] * len(answers)
    assert eve.http.get("/v1/tasks").json() == {"runs": [], "total": 0}
    assert eve.http.get("/v1/uploads").json() == {"uploads": [], "total": 0}
    environment = {"kind": "dataset", "path": "upload:mine"}
    assert eve.http.post("/v1/tasks", content=task_file(task("a", environment=environment))).status_code == 422
    assert httpx.get(f"{managed.process.url}/v1/tasks/{run}", timeout=120).status_code == 401
    assert ann.wait(run)["state"] == "done"
