"""A client in a process of its own, and what such a process runs.

It reads a line of JSON for each load that it is to put on the server and answers with one line: the result, or an "error". A load
without an end of its own goes on until the line `{"load": "stop"}`.
"""

import asyncio
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.service_loads import LOADS, Load, Tenant
from benchmarks.service_wire import WireClient

Result = dict[str, Any]
STOP = "stop"
STOP_S = 30.0


class ClientProcess:
    """The other end; also of programs in other languages and environments that keep to the same lines."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | dict(environment or {})
        )

    @classmethod
    def of_tenant(cls, url: str, key: str, model: str, name: str) -> "ClientProcess":
        return cls(name, [sys.executable, "-m", "benchmarks.service_client", url, key, model])

    def run(self, load: str, **options: Any) -> Result:
        self.start(load, **options)
        return self.result()

    def start(self, load: str, **options: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"load": load, **options}) + "\n")
        self._process.stdin.flush()

    def stop(self) -> Result:
        """The result of a load that has no end."""
        self.start(STOP)
        return self.result()

    def result(self) -> Result:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: Result = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            raise RuntimeError(f"client {self.name}: {answer['error']}")
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


async def serve_lines(tenant: Tenant, loads: Mapping[str, Load]) -> None:
    """Until standard input ends."""
    tasks: set[asyncio.Task[None]] = set()
    stop = asyncio.Event()
    while line := await asyncio.to_thread(sys.stdin.readline):
        options = json.loads(line)
        name = options.pop("load")
        if name == STOP:
            stop.set()
            continue
        stop = asyncio.Event()
        tasks.add(asyncio.create_task(_run(loads[name], tenant, stop, options)))
    for task in tasks:
        task.cancel()


async def _run(load: Load, tenant: Tenant, stop: asyncio.Event, options: dict[str, Any]) -> None:
    try:
        answer = await load(tenant, stop, **options)
    except Exception as error:
        answer = {"error": "".join(traceback.format_exception(error))[-2000:]}
    print(json.dumps(answer), flush=True)


async def _main(url: str, key: str, model: str) -> None:
    client = await WireClient(url, key).open()
    await serve_lines(Tenant(url, key, model, client), LOADS)
    await client.close()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
