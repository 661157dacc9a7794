"""`plait export`."""

from pathlib import Path
from typing import Annotated

import typer

from plait.cli.output import print_json


def export(
    run: Annotated[str, typer.Argument(help="Name or folder of the run.")],
    task: Annotated[str, typer.Argument(help="Name of the task.")],
    to: Annotated[Path, typer.Option("--to", help="Folder to write; must be new or empty.")],
    step: Annotated[
        int | None, typer.Option(help="Policy version; without it, the best one by held-out score, else the last.", min=0)
    ] = None,
    merged: Annotated[bool, typer.Option("--merged", help="Write the whole model with the adapter merged in.")] = False,
    runs: Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write a trained adapter, or the merged model.

    The adapter is in PEFT format. Of a task that trains all weights it is the model.
    """
    from plait.client.policies import export_policy
    from plait.state.rundir import find_run
    from plait.types.errors import StateError

    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise StateError(f"{to} exists and is not an empty folder.", "Choose another --to.")
    directory = find_run(run, runs)
    folder = export_policy(directory, task, step=step, merged=merged, to=to)
    if as_json:
        print_json({"run": str(directory.path), "task": task, "merged": merged, "path": str(folder)})
    else:
        print(folder)
