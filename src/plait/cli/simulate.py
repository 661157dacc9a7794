"""`plait simulate`: what a cluster would do, by the service's own schedulers."""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.output import check_finite, check_folder, check_target, print_error, print_warning, write_file
from plait.types.errors import ConfigError

if TYPE_CHECKING:
    from plait.simulation.load_scenario import Scenario
    from plait.simulation.results import ScenarioResult

EXPLANATION = """\
`plait simulate SCENARIO` simulates a cluster that you need not own, with Plait's own schedulers, for each of the systems that the
scenario compares, and prints their figures side by side.

  plait simulate eight-tasks --quick               a first look, with a tenth of the steps
  plait simulate eight-tasks --html report.html    with charts
  plait simulate my.toml --seed 7 --json out.json  a file of your own: docs/simulation.md says how to write one
  plait simulate plexrl-2048 --days 30             as many jobs as fill the cluster for a month

  plait simulate --from RUN --devices 8 --copies 4 what a recorded run would do on other hardware, with more tasks

Shipped scenarios:
"""


def simulate(
    scenario: Annotated[str | None, typer.Argument(help="A shipped scenario or a TOML file; without it, an explanation.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of all that is drawn, instead of the scenario's.", min=0)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="With a tenth of the steps, or of hundreds of jobs.")] = False,
    days: Annotated[float | None, typer.Option(help="As many jobs as fill the cluster for so many days.", min=0.01)] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all that was measured as JSON.", metavar="FILE")] = None,
    csv_folder: Annotated[Path | None, typer.Option("--csv", help="Write tables as CSV.", metavar="FOLDER")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write a report with charts.", metavar="FILE")] = None,
    run: Annotated[
        str | None, typer.Option("--from", help="Replay a recorded run's tasks: its name or folder.", metavar="RUN")
    ] = None,
    accelerator: Annotated[str | None, typer.Option(help="With --from: the devices.")] = None,
    devices: Annotated[int | None, typer.Option(help="With --from: how many.", min=2, max=1_000_000)] = None,
    model: Annotated[str | None, typer.Option(help="With --from: the base model.")] = None,
    copies: Annotated[int, typer.Option(help="With --from: of each recorded task.", min=1)] = 1,
    runs: Annotated[Path, typer.Option("--runs", help="With --from: the folder that holds the runs.")] = Path("runs"),
) -> None:
    """Simulate a cluster, and compare systems on it.

    Plait's own schedulers decide; devices and workload are simulated. The same scenario and seed give the same files, to the byte.
    """
    from plait.cli.progress import progress
    from plait.simulation.load_scenario import load_scenario
    from plait.simulation.scenario import TaskScenario
    from plait.simulation.simulate import simulate as run_simulation

    check_finite("--days", days)
    _check_targets(json_file, csv_folder, html_file)
    if run is not None and quick:
        raise ConfigError("--quick and --from contradict each other.", "A replay has the steps that were recorded.")
    if run is not None and days is not None:
        raise ConfigError("--days and --from contradict each other.", "A replay is as long as what was recorded.")
    if run is not None:
        result = _replay(run, runs, scenario, seed, (accelerator, devices, model, copies))
    elif (accelerator, devices, model, copies) != (None, None, None, 1):
        raise ConfigError("--accelerator, --devices, --model and --copies change a replay.", "Name a run with --from.")
    elif scenario is None:
        _explain()
        return
    else:
        loaded = _lasting(load_scenario(scenario), days)
        if quick and isinstance(loaded, TaskScenario) and all(task.steps == 1 for task in loaded.tasks):
            print_warning("--quick changes nothing: each task has one step.")
        with progress() as tell:
            result = run_simulation(loaded, Path(scenario).stem, seed, quick, tell)
    _hand_over(result, json_file, csv_folder, html_file)


def _check_targets(json_file: Path | None, csv_folder: Path | None, html_file: Path | None) -> None:
    check_target(json_file, "--json")
    check_target(html_file, "--html")
    check_folder(csv_folder, "--csv")
    if json_file is not None and html_file is not None and json_file.resolve() == html_file.resolve():
        raise ConfigError(f"--json and --html both name {json_file}.", "Choose another file for one of them.")


def _hand_over(result: "ScenarioResult", json_file: Path | None, csv_folder: Path | None, html_file: Path | None) -> None:
    """Files before the table: who reads that may have gone."""
    written, failures = write_files(result, json_file, csv_folder, html_file)
    print_result(result)
    print("".join(f"{path}\n" for path in written), end="")
    for failure in failures[:-1]:
        print_error(failure)
    if failures:
        raise failures[-1]


def _lasting(scenario: "Scenario", days: float | None) -> "Scenario":
    from plait.simulation.job_scenario import JobScenario

    if days is None:
        return scenario
    if not isinstance(scenario, JobScenario):
        raise ConfigError(
            f'--days {days:g}: the scenario has kind = "tasks".', "Give its tasks more steps; --days is for scenarios of jobs."
        )
    return scenario.model_copy(update={"days": days})


def _explain() -> None:
    from plait.simulation.load_scenario import shipped_names, shipped_title

    names = shipped_names()
    width = max(len(name) for name in names)
    print(EXPLANATION + "\n".join(f"  {name.ljust(width)}  {shipped_title(name)}" for name in names))


def _replay(run: str, runs: Path, scenario: str | None, seed: int | None, changes: tuple[Any, ...]) -> "ScenarioResult":
    from plait.cli.progress import progress
    from plait.simulation.load_scenario import load_scenario
    from plait.simulation.replay import Changes, replay
    from plait.simulation.run_trace import read_trace
    from plait.simulation.scenario import TaskScenario
    from plait.simulation.simulate import simulate as run_simulation
    from plait.state.rundir import find_run

    base = None if scenario is None else load_scenario(scenario)
    if base is not None and not isinstance(base, TaskScenario):
        raise ConfigError(
            f'{scenario} has kind = "jobs"; a run is replayed as tasks.', 'Give a scenario of kind = "tasks", or none.'
        )
    trace = read_trace(find_run(run, runs))
    replayed = replay(trace, Changes(*changes), base)
    with progress() as tell:
        return run_simulation(replayed.scenario, trace.name, seed, False, tell, replayed.kinds)


def print_result(result: "ScenarioResult") -> None:
    """A row for each figure, a column for each system; beside the others' values, how they compare with the first one's."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from plait.cli.paper_table import print_paper
    from plait.simulation.figures import figures_of

    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 10_000)
    note = " (quick: a tenth of the steps, or of hundreds of jobs)" if result.is_quick else ""
    console.print(f"{result.title or result.name}, seed {result.seed}{note}", markup=False)
    if result.description:
        console.print(result.description, markup=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", overflow="fold", min_width=min(14, console.width // 4))
    for system in result.systems:
        table.add_column(system.name, justify="right")
    first = result.systems[0].figures
    for figure in figures_of(result.kind):
        values = [system.figures.get(figure.key) for system in result.systems]
        if all(value is None for value in values):
            continue
        ratios = [figure.ratio(value, first.get(figure.key)) for value in values[1:]]
        cells = [figure.text(values[0]), *(f"{figure.text(v)}  {ratio:>6}" for v, ratio in zip(values[1:], ratios, strict=True))]
        table.add_row(figure.label, *cells)
    console.print(table)
    for system in result.systems:
        if left := sum(work.end_s is None for work in system.works):
            console.print(f"{system.name}: {left:,} of {len(system.works):,} jobs did not end.", markup=False)
    print_paper(console, result)


def write_files(
    result: "ScenarioResult", json_file: Path | None, csv_folder: Path | None, html_file: Path | None
) -> tuple[list[Path], list[ConfigError]]:
    """Each of them, even where another cannot be written. (What was written, what was not)"""
    written: list[Path] = []
    failures: list[ConfigError] = []
    for write in (partial(_write_json, json_file), partial(_write_csv, csv_folder), partial(_write_html, html_file)):
        try:
            written += write(result)
        except ConfigError as error:
            failures.append(error)
    return written, failures


def _write_json(file: Path | None, result: "ScenarioResult") -> list[Path]:
    if file is None:
        return []
    write_file(file, result.json(), "--json")
    return [file]


def _write_csv(folder: Path | None, result: "ScenarioResult") -> list[Path]:
    from plait.simulation.exports import write_csv

    if folder is None:
        return []
    try:
        return write_csv(result, folder)
    except ConfigError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="plait-"))
        write_csv(result, elsewhere)
        raise ConfigError(error.message, f"The tables are in {elsewhere}. {error.remedy}") from error


def _write_html(file: Path | None, result: "ScenarioResult") -> list[Path]:
    from plait.simulation.report import build_report

    if file is None:
        return []
    write_file(file, build_report(result).encode(), "--html")
    return [file]
