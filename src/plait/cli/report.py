"""`plait report`: writes a run's report.html."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[str | None, typer.Argument(help="Name or folder of the run; without it, the newest.")] = None,
    open_in_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    runs: Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")] = Path("runs"),
) -> None:
    """Write a run's report as one HTML file.

    RUN/report.html has curves, a timeline and answers. A run writes it at its end, too.
    """
    from plait.client.reports import write_run_report
    from plait.state.rundir import find_run

    path = write_run_report(find_run(run, runs))
    print(path)
    if open_in_browser:
        typer.launch(path.as_uri())
