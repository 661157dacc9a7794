"""`plait serve`: the service, in this terminal."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from plait.config.load_server import load_server_settings
from plait.config.server import ServerSettings
from plait.server.logs import set_up_logging
from plait.server.serve import Listening
from plait.server.serve import serve as run_server


def serve(
    file: Annotated[Path | None, typer.Argument(help="Settings (TOML); without one the defaults.", show_default=False)] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 for any that is free.")] = None,
    model: Annotated[str | None, typer.Option(help="Base model, as in `plait models list`.")] = None,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help='Run workers on this Ray cluster: HOST:PORT, "auto" or "local".'),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Tell where it listens as one line of JSON.")] = False,
) -> None:
    """Settings come from the file, then from variables PLAIT_SERVER__KEY=VALUE, then from the options here."""
    options = {"HOST": ("--host", host), "PORT": ("--port", port), "MODEL__PATH": ("--model", model)}
    given = {f"PLAIT_SERVER__{key}": (name, str(value)) for key, (name, value) in options.items() if value is not None}
    variables = {key: value for key, (_, value) in given.items()}
    settings = load_server_settings(file, {**os.environ, **variables}, ray, {key: name for key, (name, _) in given.items()})
    set_up_logging(settings.log_format)
    console = Console(highlight=False)
    if not as_json:
        console.print(f"Loading {', '.join(own for own, *_ in settings.model_names)} ...", markup=False, soft_wrap=True)
    run_server(settings, lambda listening: _tell(console, settings, listening, as_json))


def _tell(console: Console, settings: ServerSettings, listening: Listening, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"url": listening.url, "models": listening.models, "new_key": listening.new_key}), flush=True)
        return
    told = f"(loaded in {listening.load_s:.1f} s; data in {settings.data_folder})"
    console.print(f"Plait listens on [bold]{listening.url}[/] {told}.", soft_wrap=True)
    for own, *aliases in settings.model_names:
        console.print(f"Model: {own}" + (f", also called {', '.join(aliases)}" if aliases else ""), markup=False, soft_wrap=True)
    key = listening.new_key or "tml-..."
    if listening.new_key:
        console.print("A first key was made. It is shown this once; `plait keys create` makes more.")
    console.print(
        f"\nIn another shell:\n\n[bold]export TINKER_BASE_URL={listening.url}\nexport TINKER_API_KEY={key}[/]", soft_wrap=True
    )
    console.print("\nThen, with the Tinker SDK (pip install tinker), in Python:\n")
    console.print(snippet(listening.models[0]), style="dim", markup=False, soft_wrap=True)
    console.print(f"\nAPI page: {listening.url}/docs   Stop with Ctrl+C.", soft_wrap=True)


def snippet(model: str) -> str:
    """A program that a newcomer can paste."""
    return f"""import tinker
client = tinker.ServiceClient()
training = client.create_lora_training_client(base_model="{model}", rank=16).result()
tokenizer, sampler = training.get_tokenizer(), training.save_weights_and_get_sampling_client().result()
prompt = tinker.ModelInput.from_ints(tokenizer.encode("The capital of France is"))
answer = sampler.sample(prompt, num_samples=1, sampling_params=tinker.SamplingParams(max_tokens=16)).result()
print(tokenizer.decode(answer.sequences[0].tokens))"""
