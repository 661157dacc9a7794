"""SIGTERM: what is new is turned away, what is under way ends or goes on after the restart, and the process ends in time."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import psutil
import pytest
import tinker

from plait.config.load_server import PREFIX
from tests.server.e2e.data import datum
from tests.server.server_process import HANGS_S, running_server

DATUM = datum(range(1, 201), target_tokens=range(2, 202), weights=[1.0] * 200)


def wait_for(condition: Callable[[], bool], timeout_s: float = HANGS_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


class Stopped(NamedTuple):
    exit_code: int
    seconds: float
    log: str


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """A server that was asked for one thing, and then had nothing to do when the signal came."""
    with running_server(tmp_path_factory.mktemp("stopped"), LOG_FORMAT="json", STOP_TIMEOUT_S=600) as server:
        with server.http("tml-000000000000-unknownunknown") as http:
            http.get("/get_server_capabilities", headers={"X-Request-ID": "find-me"})
        start_s = time.monotonic()
        return Stopped(server.stop(), time.monotonic() - start_s, server.log.read_text())


def test_an_idle_server_ends_at_once(stopped: Stopped) -> None:
    assert stopped.exit_code == 0
    assert stopped.seconds < 60, "it does not wait for its limit"


MUCH_WORK = 60
"""Calls of some 50 ms: the server cannot be through with them as soon as they are let go."""


@contextlib.contextmanager
def held_work(server: Any, calls: int = 6) -> Iterator[list[Any]]:
    """Results of calls that were all acknowledged; none ends within the block, as the training worker stands still."""
    training = server.client_for().create_lora_training_client(base_model=server.models[0], rank=2).result()
    trainer = server.workers()[1]
    trainer.suspend()
    try:
        passes = [training.forward_backward([DATUM] * 24, "cross_entropy") for _ in range(calls)]
        step = training.optim_step(tinker.AdamParams(learning_rate=1e-3))
        accepted = 'plait_http_requests_total{method="POST",route="/api/v1/optim_step",status="200"} 1.0'
        wait_for(lambda: accepted in httpx.get(f"{server.url}/metrics", timeout=120).text)
        yield [*passes, step]
    finally:
        trainer.resume()


def test_work_under_way_ends_and_new_work_is_turned_away(own_server: Any) -> None:
    with own_server(STOP_TIMEOUT_S=600) as server:
        with held_work(server) as results, server.http() as http:
            os.kill(server.pid, signal.SIGTERM)
            wait_for(lambda: http.get(f"{server.url}/readyz").status_code == 503)
            refused = http.post("/create_sampling_session", json={})
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert http.get(f"{server.url}/healthz").status_code == 200
        for result in results:
            result.result(timeout=120)
        wait_for(lambda: not server.is_running)
        assert server.stop() == 0


def test_work_that_takes_too_long_goes_on_after_the_restart(own_server: Any) -> None:
    with own_server(STOP_TIMEOUT_S=0) as server:
        with held_work(server, MUCH_WORK) as results:
            pass
        assert server.stop() == 0
        assert "calls go on after a restart" in server.tail()
        server.start()
        for result in results:
            result.result(timeout=120)


def test_a_second_signal_does_not_wait(own_server: Any) -> None:
    with own_server(STOP_TIMEOUT_S=600) as server:
        with held_work(server, MUCH_WORK):
            os.kill(server.pid, signal.SIGTERM)
            wait_for(lambda: httpx.get(f"{server.url}/readyz", timeout=120).status_code == 503)
        assert server.stop() == 0
        assert "calls go on after a restart" in server.tail()


def serve_again(server: Any, **settings: str) -> "subprocess.CompletedProcess[str]":
    more = {f"{PREFIX}{name}": value for name, value in {"PORT": "0", **settings}.items()}
    return subprocess.run(
        [sys.executable, "-m", "plait.cli.main", "serve", "--json"],
        env={**os.environ, "OMP_NUM_THREADS": "1", **more}, capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip


def test_a_second_server_on_the_same_data_is_refused(server: Any) -> None:
    result = serve_again(server, DATA_FOLDER=str(server.folder / "data"), MODEL__PATH=str(server.model))
    assert result.returncode == 2
    assert f"is in use by a server: process {server.pid}" in result.stderr


def test_an_address_for_others_needs_a_key(server: Any, tmp_path: Any) -> None:
    settings = {"DATA_FOLDER": str(tmp_path / "new"), "MODEL__PATH": str(server.model), "HOST": "0.0.0.0"}
    result = serve_again(server, **settings)
    assert result.returncode == 2
    assert "plait keys create" in result.stderr


def test_a_signal_while_the_model_loads_ends_it(server: Any, tmp_path: Any) -> None:
    settings = {"DATA_FOLDER": str(tmp_path / "new"), "MODEL__PATH": str(server.model), "PORT": "0"}
    process = subprocess.Popen(
        [sys.executable, "-m", "plait.cli.main", "serve", "--json"],
        env={**os.environ, "OMP_NUM_THREADS": "1", **{f"{PREFIX}{name}": value for name, value in settings.items()}},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        wait_for(lambda: bool(psutil.Process(process.pid).children()))  # Its workers, which load the model.
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=HANGS_S)
        assert process.returncode == 0
    finally:
        process.kill()


def test_the_log_is_json_to_the_end(stopped: Stopped) -> None:
    lines = [json.loads(line) for line in stopped.log.splitlines()]
    (found,) = [line for line in lines if line.get("request_id") == "find-me"]
    assert (found["status"], found["route"], found["level"]) == (401, "/api/v1/get_server_capabilities", "warning")
    assert "unknown or revoked" in found["error"]
    assert "unknownunknown" not in stopped.log
