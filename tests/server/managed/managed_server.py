"""Tenants of a real server that send tasks, and the same tasks run alone for comparison."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from plait.client.runs import run_file
from plait.client.server_link import ServerEvent, read_events
from plait.config.load import effective_toml, parse_settings
from plait.observe.events import StepCommitted
from plait.observe.log import read_latest_events
from plait.state.rundir import RunDirectory
from plait.state.samples import read_samples
from tests.server.server_process import ServerProcess

OVER = ("done", "failed", "cancelled")
TIMEOUT_S = 240.0


class TenantClient:
    def __init__(self, url: str, tenant_id: str, key: str) -> None:
        self.tenant_id, self.key = tenant_id, key
        self.http = httpx.Client(base_url=url, headers={"X-API-Key": key}, timeout=60)

    def submit(self, text: str) -> str:
        response = self.http.post("/v1/tasks", content=text)
        assert response.status_code == 201, response.text
        return str(response.json()["run_id"])

    def show(self, run_id: str) -> dict[str, Any]:
        return dict(self.http.get(f"/v1/tasks/{run_id}").raise_for_status().json())

    def act(self, action: str, run_id: str, **query: str) -> httpx.Response:
        return self.http.post(f"/v1/tasks/{run_id}/{action}", params=query)

    def wait(self, run_id: str, is_enough: Callable[[dict[str, Any]], bool] | None = None) -> dict[str, Any]:
        """Until the run is over, or `is_enough` of what is shown of it."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline_s:
            view = self.show(run_id)
            if view["state"] in OVER or (is_enough is not None and is_enough(view)):
                return view
            time.sleep(0.05)
        raise AssertionError(f"run {run_id} did not come so far: {view}")

    def events(self, run_id: str, last_id: str = "") -> Iterator[ServerEvent]:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        with self.http.stream("GET", f"/v1/tasks/{run_id}/events", headers=headers, timeout=TIMEOUT_S) as response:
            assert response.status_code == 200, response.read()
            yield from read_events(line.encode() + b"\n" for line in response.iter_lines())

    def upload(self, name: str, records: list[dict[str, str]]) -> httpx.Response:
        return self.http.post("/v1/uploads", params={"name": name}, content="\n".join(map(json.dumps, records)))


class ManagedServer:
    def __init__(self, process: ServerProcess) -> None:
        self.process = process

    def tenant(self) -> TenantClient:
        tenant = self.process.tenant()
        return TenantClient(self.process.url, tenant.tenant_id, tenant.key)

    def run_folder(self, client: TenantClient, run_id: str) -> RunDirectory:
        return RunDirectory(self.process.folder / "data" / "tenants" / client.tenant_id / "runs" / run_id)

    def run_alone(self, folder: Path, text: str) -> RunDirectory:
        """The same file with `plait run`, with the server's model and engine."""
        own = f"""
[model]
path = "{self.process.model}"
dtype = "float32"
max_context_tokens = 256
[engine]
max_rows = 16
slot_tokens = 4096
pool_tokens = 4096
chunk_tokens = 16
[workers]
environment_processes = 1
"""
        settings = parse_settings(text + own, folder)
        directory = RunDirectory.create(folder / "runs", settings.name, effective_toml(settings))
        assert run_file(settings, directory, show_progress=False) == "done"
        return directory


def trained(directory: RunDirectory, task: str) -> list[tuple[int, str, float, float, list[Any]]]:
    """(step, adapter digest, loss, gradient norm, what was sampled) of every step."""
    steps = [e for e in read_latest_events(directory.events) if isinstance(e, StepCommitted) and e.task == task]
    return [(e.step, e.adapter_digest, e.loss, e.grad_norm, _sampled(directory, e)) for e in steps]


def _sampled(directory: RunDirectory, step: StepCommitted) -> list[Any]:
    if step.phase == "warm_start":
        return []
    samples = read_samples(directory.samples_file(step.task, step.step))
    return [(s.tokens, s.logprobs, s.stop) for record in samples for s in record.trajectory.segments]
