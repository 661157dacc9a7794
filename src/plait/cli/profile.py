"""`plait profile`: what a model's calls take on this machine, for simulations of it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from plait.cli.output import check_target, write_file


class Dtype(StrEnum):
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


def profile(
    model: Annotated[str, typer.Argument(help='A model of `plait models`, a folder, or "tiny".')] = "tiny",
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the profile goes.")] = Path("profile.json"),
    dtype: Annotated[Dtype, typer.Option(help="Of the weights.")] = Dtype.BFLOAT16,
    adapters: Annotated[int, typer.Option(min=0, help="Of rank 16 on all linear layers, mixed in a batch.")] = 4,
    threads: Annotated[int, typer.Option(min=0, help="0: as many as there are cores.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller points.")] = False,
) -> None:
    """Measure a model on this machine, for simulations of it.

    Let nothing else run meanwhile. The error that is printed is that of the fit on points that it was not told.
    """
    import tempfile

    import torch

    from plait.cli.progress import progress
    from plait.models.catalogue import find
    from plait.models.tiny import make_tiny_model
    from plait.simulation.measure_profile import measure
    from plait.simulation.profile import errors_of

    check_target(output, "--output")
    if threads:
        torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as scratch, progress() as tell:
        folder = make_tiny_model(Path(scratch) / "tiny") if model == "tiny" else find(model)
        measured = measure(folder, dtype.value, quick, tell, adapters)
    write_file(output, measured.json(), "--output")
    for name, error in errors_of(measured).items():
        if error.num_points:
            print(f"{name}: off by {error.median:.1%} (median), {error.worst:.1%} (worst) on {error.num_points} points not fitted")
    print(f"Written to {output}.")
