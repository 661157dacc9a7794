"""Training steps and sampled tokens a second through an SDK: Plait against SkyRL, each with the SDK that it speaks to.

Both servers are up and warm, and the rounds take turns. The fastest round of each counts.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import interleave
from benchmarks.service_client import ClientProcess, Result
from benchmarks.service_server import STOP_S, VOCAB_SIZE, PlaitServer

ENVIRONMENT = Path(__file__).parent.parent / ".bench-peers" / "skyrl"
PYTHON = ENVIRONMENT / "bin" / "python"
PEERS = Path(__file__).parent / "peers"
START_S = 300.0
START_TICK_S = 0.5
ANY_KEY = "tml-benchmark"
"""SkyRL asks for none; its SDK does."""


@dataclass(frozen=True, slots=True)
class Script:
    """What each round does."""

    steps: int = 10
    num_datums: int = 16
    num_tokens: int = 64
    num_prompts: int = 32
    prompt_tokens: int = 16
    max_tokens: int = 32
    num_rounds: int = 3

    def train(self, client: ClientProcess, steps: int) -> Result:
        return client.run("train", count=steps, num_datums=self.num_datums, num_tokens=self.num_tokens)

    def sample(self, client: ClientProcess) -> Result:
        return client.run("sample", num_prompts=self.num_prompts, prompt_tokens=self.prompt_tokens, max_tokens=self.max_tokens)

    def warm_up(self, client: ClientProcess) -> None:
        """Twice: SkyRL compiles for each shape, of gradients that are there and of those that are not."""
        for _ in range(2):
            self.train(client, 1)
            self.sample(client)

    def round(self, client: ClientProcess) -> dict[str, float]:
        trained, sampled = self.train(client, self.steps), self.sample(client)
        return {
            "steps_per_s": trained["count"] / trained["wall_s"],
            "sampled_tokens_per_s": sampled["num_tokens"] / sampled["wall_s"],
        }


QUICK = Script(steps=3, num_prompts=16, max_tokens=16, num_rounds=1)


def is_installed() -> bool:
    return PYTHON.exists()


def compare(plait: PlaitServer, key: str, folder: Path, script: Script) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        url = stack.enter_context(skyrl_server(Path(plait.model), folder))
        clients = {
            "plait": stack.enter_context(closing(script_client("plait", sys.executable, plait.url, key, plait.model))),
            "skyrl": stack.enter_context(closing(script_client("skyrl", str(PYTHON), url, ANY_KEY, plait.model))),
        }
        for client in clients.values():
            script.warm_up(client)
        rounds = interleave({name: partial(script.round, client) for name, client in clients.items()}, script.num_rounds)
    return [row_of(name, found) for name, found in rounds.items()]


def row_of(system: str, rounds: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    fastest = {name: max(found[name] for found in rounds) for name in rounds[0]}
    return {"measure": "the same script", "setting": system, **fastest, "all_rounds": list(rounds)}


def script_client(name: str, python: str, url: str, key: str, model: str) -> ClientProcess:
    environment = {"TINKER_BASE_URL": url, "TINKER_API_KEY": key, "TINKER_TELEMETRY": "0", "HF_HUB_OFFLINE": "1"}
    return ClientProcess(name, [python, str(PEERS / "tinker_script.py"), model, str(VOCAB_SIZE)], environment)


@contextmanager
def skyrl_server(model: Path, folder: Path) -> Iterator[str]:
    """Its address."""
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    with (folder / "skyrl.log").open("w+", encoding="utf-8") as log:
        process = subprocess.Popen(
            [PYTHON, PEERS / "skyrl_server.py", model, folder, str(port)],
            env=os.environ | {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_up(process, url, folder / "skyrl.log")
            yield url
        finally:
            _stop(process)


def _wait_until_up(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s and process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/api/v1/healthz", timeout=5).close()
        except OSError:
            time.sleep(START_TICK_S)
        else:
            return
    raise RuntimeError(f"SkyRL did not start:\n{log.read_text()[-3000:]}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """It ends its engine, given time."""
    import psutil

    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in psutil.wait_procs(children, timeout=STOP_S)[1]:
        child.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
