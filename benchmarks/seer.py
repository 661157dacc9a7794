"""Rollout on several engines: Seer's mechanisms one by one, against groups pinned to engines, an oracle, and partial rollout.

    python -m benchmarks.seer [--quick] [--json FILE] [--figure FILE]

- All systems have the same engines (processes of one thread each), memory for rows and requests; what they draw is compared bit by
  bit. Systems take turns, round after round; figures are medians.
- Lengths are forced (`seer_workload`), or, in "free", SmolLM2's own. "cache" is what the rows of all engines may hold together, as
  a share of what all requests hold at their ends.
- "last tenth" is the time from the end of the first 90 % of requests to the end of all.
"""

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.common import write_json
from benchmarks.engine_table import print_headlines
from benchmarks.seer_cases import FULL, QUICK, Case, tenant_rows
from benchmarks.seer_headlines import headlines_of
from benchmarks.seer_run import EngineProcess
from benchmarks.seer_table import draw_figure, print_rows, print_tenants

TABLE_WIDTH = 170
"""Lines are not broken where there is no terminal."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the tiny model, one workload, two sizes of cache: about two minutes")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--figure", type=Path, help="draw the ablation to this file")
    parser.add_argument("--case", choices=[case.name for case in FULL], nargs="+", help="only these")
    arguments = parser.parse_args()
    console = Console()
    console = Console(width=max(console.width, TABLE_WIDTH))
    cases = [case for case in (QUICK if arguments.quick else FULL) if not arguments.case or case.name in arguments.case]
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as folder:
        rows, tenants = run(console, Path(folder), cases)
    print_rows(console, rows)
    print_tenants(console, tenants)
    headlines = headlines_of(rows)
    print_headlines(console, headlines)
    if arguments.json:
        write_json(arguments.json, [*rows, *tenants], headlines)
    if arguments.figure:
        draw_figure(arguments.figure, rows)


def run(console: Console, folder: Path, cases: Sequence[Case]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of systems, and rows of tenants. Cases of one model and number of engines share the processes."""
    rows: list[dict[str, Any]] = []
    tenants: list[dict[str, Any]] = []
    for key in dict.fromkeys(case.engines_key for case in cases):
        mine = [case for case in cases if case.engines_key == key]
        model = mine[0].model.folder(folder)
        with ExitStack() as stack:
            engines = [
                stack.enter_context(closing(EngineProcess(f"engine-{index}", model, mine[0].model.dtype)))
                for index in range(mine[0].num_engines)
            ]
            is_invariant = [engine.wait_until_ready() for engine in engines]
            console.log(f"{key}: {len(engines)} engines, batch-invariant: {all(is_invariant)}")
            for case in mine:
                if case.is_of_tenants:
                    tenants += tenant_rows(case, engines, console)
                else:
                    rows += case.rows(engines, model, console)
    return rows, tenants


if __name__ == "__main__":
    main()
