"""`plait models list` and `plait models pull`."""

from typing import Annotated

import typer

from plait.cli.output import human_bytes, print_json

app = typer.Typer(help="List and fetch base models.", no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.command("list")
def list_models(as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False) -> None:
    """List the models that can be had by name."""
    import msgspec

    from plait.models import catalogue

    entries = catalogue.list_models()
    if as_json:
        print_json([msgspec.to_builtins(entry, enc_hook=str) for entry in entries])
        return
    for entry in entries:
        where = str(entry.path) if entry.path else f"not here yet: plait models pull {entry.name}"
        size = f"{entry.num_parameters / 1e6:.0f} M parameters, {human_bytes(entry.size_bytes)} to download"
        print(f"{entry.name}  {size}, {entry.licence}, {entry.source}\n  {where}")
    print("Any folder with safetensors weights, GGUF file or hub id (owner/name) serves as well.")


@app.command("pull")
def pull(
    name: Annotated[str, typer.Argument(help="A name from `plait models list`, or a hub id.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the folder as JSON.")] = False,
) -> None:
    """Fetch a model, unless it is there already, and say where it lies."""
    from plait.models import catalogue

    is_listed = any(entry.name == name for entry in catalogue.list_models())
    if "/" in name and not is_listed:
        folder = catalogue.find(name)
    else:
        folder = catalogue.pull(name, lambda message: typer.echo(message, err=True))
    if as_json:
        print_json({"name": name, "path": str(folder)})
    else:
        print(folder)
