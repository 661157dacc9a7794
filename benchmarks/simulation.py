"""The papers' tables, what each strand of Plait adds on top of the others, and how near simulations come to measurements.

    python -m benchmarks.simulation [--quick] [--part NAME ...] [--results FOLDER]

- "marlaas", "seer-moonlight", "seer-qwen2vl", "seer-k2", "plexrl-2048": the shipped scenario, its paper's figures beside ours,
  and how the headline changes with what was assumed. `--quick`: a smaller cluster with the same load on each engine.
- "strands": multi-task sharing, divided rollout with context and drafts, function-level multiplexing: all eight combinations.
- "validation": `marlaas`, `seer` and `plexrl` on this machine's cost profiles, against benchmarks/results/.
- "speed": events a second, simulated days a minute and memory, of a month of jobs on 2048 devices and of rollouts in chunks.
- With `--results`, each part writes simulation-PART.json there; docs/make_results.py makes docs/results.md of these files.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console

from benchmarks.common import write_json
from benchmarks.simulation_found import Found
from benchmarks.simulation_papers import PAPERS, run_paper
from benchmarks.simulation_speed import run_speed
from benchmarks.simulation_strands import run_strands
from benchmarks.simulation_table import print_part
from benchmarks.simulation_validation import run_validation

Part = Callable[[bool], Found]
"""Given whether it is to be quick."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller clusters: about a minute")
    parser.add_argument("--part", choices=list(parts()), nargs="+", help="only these")
    parser.add_argument("--results", type=Path, help="write simulation-PART.json into this folder")
    arguments = parser.parse_args()
    console = Console()
    for name in arguments.part or parts():
        found = parts()[name](arguments.quick)
        print_part(console, name, found)
        if arguments.results:
            write_json(arguments.results / f"simulation-{name}.json", found.rows, found.headline)


def parts() -> Mapping[str, Part]:
    papers: dict[str, Part] = {paper: lambda is_quick, paper=paper: run_paper(paper, is_quick) for paper in PAPERS}  # type: ignore[misc]
    return papers | {"strands": run_strands, "validation": run_validation, "speed": run_speed}


if __name__ == "__main__":
    main()
