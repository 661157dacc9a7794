"""`plait run` and `plait resume`."""

import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.output import print_json
from plait.types.errors import ConfigError

if TYPE_CHECKING:
    from plait.config.run import RunSettings
    from plait.state.rundir import RunDirectory

EXPLANATION = """\
`plait run FILE.toml` trains every task that the file lists, all at once: a LoRA adapter each on shared base models, or all weights.
It shows its progress, and leaves adapters in PEFT format and a report with curves in runs/NAME.

  plait run --example > tasks.toml     a file to start from (below)
  plait run --dry-run tasks.toml       what it needs: memory, disk, time
  plait run tasks.toml

A minimal file:
"""
RunsFolder = Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")]
MinGain = Annotated[
    float | None,
    typer.Option("--check-gain", help="Exit with 1 unless each task's held-out accuracy rises by at least this.", min=0, max=1),
]
Ray = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDRESS", help='Run workers on this Ray cluster: HOST:PORT, "auto" or "local".'),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def run(
    file: Annotated[Path | None, typer.Argument(help="Settings file in TOML; without it, an explanation.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what the run needs, and do not start it.")] = False,
    example: Annotated[bool, typer.Option("--example", help="Print a settings file to start from.")] = False,
    name: Annotated[str | None, typer.Option(help="Name of the run, instead of the file's.")] = None,
    ray: Ray = None,
    runs: RunsFolder = Path("runs"),
    check_gain: MinGain = None,
    as_json: AsJson = False,
) -> None:
    """Train the tasks of a settings file.

    All tasks train at the same time. Ctrl-C stops the run, and loses no finished step: `plait resume` goes on.
    Exit codes: 0 done, 1 a task failed or --check-gain is not reached, 2 an error, 130 interrupted.
    """
    if example:
        print(example_toml(), end="")
        return
    if file is None:
        print(EXPLANATION + "\n" + example_toml(), end="")
        raise typer.Exit(2)
    settings = _placed(_load(file, name), ray)
    if dry_run:
        from plait.cli.dry_run import print_estimate

        print_estimate(settings, as_json)
        return
    settings, directory = _create(settings, runs)
    _train(settings, directory, is_resumed=False, min_gain=check_gain, as_json=as_json)


def resume(
    run: Annotated[str | None, typer.Argument(help="Name or folder of the run; without it, the newest.")] = None,
    ray: Ray = None,
    runs: RunsFolder = Path("runs"),
    check_gain: MinGain = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run that was interrupted.

    With the settings in RUN/config.toml, which may be edited before. Tasks that failed or were cancelled are tried again.
    """
    from plait.config.load import load_settings
    from plait.state.rundir import find_run

    directory = find_run(run, runs)
    settings = _placed(load_settings(directory.config), ray)
    _train(settings, directory, is_resumed=True, min_gain=check_gain, as_json=as_json)


def example_toml() -> str:
    return resources.files("plait.cli").joinpath("example.toml").read_text(encoding="utf-8")


def _load(file: Path, name: str | None) -> "RunSettings":
    from plait.client.start_points import with_shapes
    from plait.config.load import load_settings, with_name

    if file.is_dir():
        raise ConfigError(f"{file} is a folder.", "Give a TOML file, or `plait resume` the run that lies there.")
    settings = with_shapes(load_settings(file), str(file))
    return with_name(settings, name) if name else settings


def _placed(settings: "RunSettings", ray: str | None) -> "RunSettings":
    from plait.config.load import with_ray

    return settings if ray is None else with_ray(settings, ray)


def _create(settings: "RunSettings", root: Path) -> "tuple[RunSettings, RunDirectory]":
    from plait.client.start_points import create_run

    return create_run(settings, root)


def _train(settings: "RunSettings", directory: "RunDirectory", *, is_resumed: bool, min_gain: float | None, as_json: bool) -> None:
    from plait.cli.gain import describe_gains, gains_of, is_enough
    from plait.cli.status import resume_command
    from plait.client.runs import run_file
    from plait.observe.log import read_latest_events

    try:
        status = run_file(settings, directory, resume=is_resumed, show_progress=not as_json)
    except KeyboardInterrupt:
        print(f"interrupted; go on with: {resume_command(directory)}", file=sys.stderr)
        raise typer.Exit(130) from None
    gains = gains_of([task.name for task in settings.tasks], read_latest_events(directory.events))
    if as_json:
        print_json(
            {"run": str(directory.path), "report": str(directory.report), "tasks": {gain.task: gain.as_dict() for gain in gains}}
        )
    else:
        print(describe_gains(gains, min_gain))
        print(f"report: {directory.report}")
    if status == "failed" or (min_gain is not None and not is_enough(gains, min_gain)):
        raise typer.Exit(1)
