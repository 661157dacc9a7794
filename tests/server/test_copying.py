"""Copies of checkpoints, where something comes in between."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from plait.server import copying
from plait.server.checkpoints import CheckpointStore
from plait.server.copying import WeightsCopier, link_folder
from plait.server.database import checkpoints, models
from plait.server.database.database import Database
from plait.server.errors import NotFound
from plait.server.folders import DataFolders
from plait.server.principal import Principal
from plait.server.saving import StoredLimit
from plait.server.wire.models.checkpoints import CopyWeightsRequest
from plait.types.errors import PlaitError
from tests.server.database.rows import fill, make_checkpoint

SOURCE = "tinker://s:train:0/weights/a"
REQUEST = CopyWeightsRequest(source_path=SOURCE, destination_project_id="p")
ANN = Principal("ann", "k", is_admin=False)


class Place:
    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self.database = Database.open(f"sqlite:///{folder}/plait.db")
        self.database.submit(fill).result(60)
        self.folders, self.store = DataFolders(folder), CheckpointStore(self.database)
        self.source = self.folders.checkpoint("ann", "s:train:0", "weights", "a@1")
        self.source.mkdir(parents=True)
        (self.source / "adapter.bin").write_bytes(b"weights")
        row = make_checkpoint("a", folder=str(self.source), size_bytes=7)
        self.database.submit(lambda session: checkpoints.add_checkpoint(session, row)).result(60)
        self.copier = WeightsCopier(self.database, self.store, self.folders, StoredLimit(self.store, lambda tenant_id: limit))

    def files(self) -> list[Path]:
        return sorted(self.folders.root.rglob("adapter.bin"))

    def copy(self, *idempotency_keys: str | None) -> list[str]:
        """At once."""

        async def copy_all() -> list[str]:
            return await asyncio.gather(*(self.copier.copy(ANN, REQUEST, key) for key in idempotency_keys))

        return asyncio.run(copy_all())

    def num_models(self) -> int:
        return int(self.database.submit(models.list_models, None, 10, 0).result(60)[1])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.database.stop()


def test_requests_repeated_at_once_make_one_copy(place: Place) -> None:
    paths = place.copy(*["key"] * 8)
    assert len(set(paths)) == 1
    assert len(place.files()) == 2
    assert place.copy("other")[0] not in paths


def test_a_source_deleted_meanwhile_leaves_no_copy(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def delete(session: Session) -> None:
        checkpoints.delete_checkpoint(session, SOURCE, "ann")

    def link(source: Path, target: Path) -> None:
        link_folder(source, target)
        place.database.submit(delete).result(60)

    monkeypatch.setattr(copying, "link_folder", link)
    with pytest.raises(NotFound, match="no checkpoint"):
        place.copy(None)
    assert place.files() == [place.source / "adapter.bin"]
    assert place.num_models() == 1


def test_a_source_without_files_is_not_there(place: Place) -> None:
    shutil.rmtree(place.source)
    with pytest.raises(NotFound):
        place.copy(None)
    assert place.num_models() == 1


def test_a_copy_counts_as_stored(tmp_path: Path) -> None:
    place = Place(tmp_path, limit=10)
    place.copy(None)
    with pytest.raises(PlaitError, match="stored_bytes is 14"):
        place.copy(None)
    place.database.stop()


def test_files_are_copied_where_links_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x")

    def refuse(*_: Any) -> None:
        raise OSError(18, "another device")

    monkeypatch.setattr(copying.os, "link", refuse)
    link_folder(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b" / "file").read_bytes() == b"x"
