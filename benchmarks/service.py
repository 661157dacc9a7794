"""The service under load: a `plait serve` process, and clients in processes of their own.

    python -m benchmarks.service [--quick] [--json FILE]

- The model is random, with 3 million parameters: what is measured is the service, not the arithmetic.
- Light clients (`service_wire`) speak the wire format; the SDK itself asks for 2000 samples at once, and runs the script that is
  compared with SkyRL 0.4.0 (`make bench-peers`), whose SDK is 0.25.
- What is compared takes turns. All processes share the machine's cores.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks import service_measures as m
from benchmarks import service_skyrl as skyrl
from benchmarks.common import write_json
from benchmarks.engine_table import print_headlines
from benchmarks.service_client import ClientProcess
from benchmarks.service_headlines import headlines_of
from benchmarks.service_server import PlaitServer, make_model
from benchmarks.service_table import print_rows

TABLE_WIDTH = 150
"""Lines are not broken where there is no terminal."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all measures use."""

    server: PlaitServer
    clients: m.Clients
    sizes: m.Sizes
    folder: Path
    is_quick: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few requests and rounds, 300 samples at once: about two minutes")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--only", choices=sorted(MEASURES), nargs="+", help="print these measures' figures, and no headlines")
    arguments = parser.parse_args()
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    console = Console()
    console = Console(width=max(console.width, TABLE_WIDTH))
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as folder:
        rows = run(console, Path(folder), arguments.quick, arguments.only or list(MEASURES))
    print_rows(console, rows)
    headlines = {} if arguments.only else headlines_of(rows)
    if headlines:
        print_headlines(console, headlines)
    if arguments.json:
        write_json(arguments.json, rows, headlines)


def run(console: Console, folder: Path, is_quick: bool, names: list[str]) -> list[m.Row]:
    with ExitStack() as stack:
        console.log("starting the server")
        server = stack.enter_context(closing(PlaitServer(folder, make_model(folder / "model"))))
        clients = m.Clients(*(stack.enter_context(closing(_client(server, name))) for name in ("busy", "other")))
        clients.warm_up()
        setting = Setting(server, clients, m.QUICK if is_quick else m.Sizes(), folder, is_quick)
        rows: list[m.Row] = []
        for name in names:
            console.log(f"measuring: {name}")
            rows += MEASURES[name](setting)
        return rows


def _client(server: PlaitServer, tenant: str) -> ClientProcess:
    return ClientProcess.of_tenant(server.url, server.key_of(tenant), server.model, tenant)


def _publishing(setting: Setting) -> list[m.Row]:
    """Paced as an RL run is, and, unless it is to be quick, as fast as it goes."""
    sizes = setting.sizes
    paces = [sizes.publish_every_s] if setting.is_quick else [sizes.publish_every_s, 0.0]
    return [row for every_s in paces for row in m.measure_publishing(setting.clients, sizes, every_s)]


def _skyrl(setting: Setting) -> list[m.Row]:
    if not skyrl.is_installed():
        return []
    script = skyrl.QUICK if setting.is_quick else skyrl.Script()
    return skyrl.compare(setting.server, setting.server.key_of("script"), setting.folder / "skyrl", script)


MEASURES: dict[str, Callable[[Setting], list[m.Row]]] = {
    "requests": lambda setting: m.measure_requests(setting.clients, setting.sizes),
    "results": lambda setting: m.measure_results(setting.clients, setting.sizes),
    "sample_beside_training": lambda setting: m.measure_sample_beside_training(setting.clients, setting.sizes),
    "quantum": lambda setting: m.measure_quantum(setting.clients, setting.sizes),
    "turns": lambda setting: m.measure_turns(setting.server, setting.clients, setting.sizes),
    "publishing": _publishing,
    "many_at_once": lambda setting: m.measure_many_at_once(setting.server, setting.clients, setting.sizes),
    "skyrl": _skyrl,
}


if __name__ == "__main__":
    main()
