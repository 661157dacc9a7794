"""`benchmarks.plexrl` in simulated time against what was measured (benchmarks/results/plexrl.json).

    python -m benchmarks.simulation_plexrl [--measure] [--results FOLDER]

- `--measure`: first find out what each job takes alone, in some five minutes, and write profile-plexrl.json. Nothing else may run.
- Simulated are the same systems, with the service's own queue, orders, ledger and lookahead. Nothing of a run in which jobs share
  workers goes into it; what each job takes alone is scored too.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.engine_table import print_headlines
from benchmarks.plexrl_jobs import SCENARIOS
from benchmarks.plexrl_systems import SYSTEMS
from benchmarks.simulation_found import Found, Row
from benchmarks.simulation_plexrl_profile import Profiles, measure
from benchmarks.simulation_plexrl_run import simulate_system
from benchmarks.simulation_scores import RESULTS, compared, headlines, measured
from benchmarks.simulation_table import print_part

PROFILE = "profile-plexrl.json"
MEASURED_S = 15.0
FIGURES = ("steps_per_hour", "step_s")
"""Of all jobs together; of each, the time in which it completes a step."""
TEXTS = (
    "plexrl: what calls, tools and moves take is measured of each job alone in a group; all that comes of sharing is predicted.",
    "plexrl: not in the simulation: that all processes share two cores.",
)
SYSTEM_OF = {system.name: system for system in SYSTEMS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="what jobs take alone, first")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of plexrl.json and of the profile")
    arguments = parser.parse_args()
    if arguments.measure:
        write_profile(arguments.results / PROFILE)
    rows = list(plexrl_rows(arguments.results))
    found = Found([*rows, *({"kind": "assumption", "text": text} for text in TEXTS)], headlines("plexrl", rows, FIGURES))
    console = Console()
    print_part(console, "plexrl", found)
    print_headlines(console, found.headline)


def write_profile(path: Path) -> None:
    profiles = {scenario.name: measure(scenario.jobs, MEASURED_S) for scenario in SCENARIOS}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(profiles), indent=1) + b"\n")


def read_profile(path: Path) -> Profiles:
    return msgspec.json.decode(path.read_bytes(), type=Profiles)


def plexrl_rows(folder: Path = RESULTS) -> Iterator[Row]:
    """`folder`: of what was measured of systems, and of jobs alone."""
    profiles = read_profile(folder / PROFILE)
    for row in measured("plexrl", folder):
        name, system = row["scenario"], row["system"]
        step_times_s = simulate_system(SYSTEM_OF[system], profiles[name])
        steps_per_hour = 3600 * sum(1 / step_s for step_s in step_times_s.values())
        yield compared(f"plexrl, {name}", system, FIGURES[0], 3600 * row["steps_per_s"], steps_per_hour)
        for job, step_s in step_times_s.items():
            yield compared(f"plexrl, {name}, {job}", system, FIGURES[1], row["step_s"][job], step_s)


if __name__ == "__main__":
    main()
