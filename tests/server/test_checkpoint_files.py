"""Checkpoints that are deleted or replaced while somebody reads them: whole, or not there, and never an error of the server."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import FileResponse

from plait.config.server import ServerSettings
from plait.rollout.service import RolloutError
from plait.server import copying
from plait.server.app import _on_plait_error
from plait.server.call import Call, CallError, Kind
from plait.server.checkpoints import CheckpointStore
from plait.server.copying import WeightsCopier
from plait.server.database import checkpoints, managed
from plait.server.database.database import Database
from plait.server.database.tables import ManagedRun
from plait.server.errors import NotFound
from plait.server.external_files import ROUTE, ExternalFiles
from plait.server.folders import DataFolders
from plait.server.managed import starts
from plait.server.principal import Principal
from plait.server.routes import checkpoint_files, external_weights
from plait.server.routes.dependencies import principal_of
from plait.server.samplers import SamplerInfo, Samplers
from plait.server.sampling import Sampling
from plait.server.saving import Saving, StoredLimit
from plait.server.tinker_path import SEGMENTS
from plait.server.url_signer import UrlSigner
from plait.server.wire.models.checkpoints import CopyWeightsRequest
from plait.server.wire.models.sampling import CreateSamplingSessionRequest
from plait.server.wire.models.weights import LoadWeightsRequest
from plait.state.rundir import RunDirectory
from plait.types.errors import ConfigError, PlaitError
from plait.types.policy import AdapterRef, PolicyVersion
from tests.server.database.rows import fill, make_checkpoint

ANN = Principal("ann", "k", is_admin=False)
MODEL = "s:train:0"
KINDS = {"training": f"tinker://{MODEL}/weights/a", "external": f"tinker://{MODEL}/external_weights/a"}
TRAINING, EXTERNAL = KINDS["training"], KINDS["external"]
BIG = bytes(range(256)) * 1024
"""More than is sent at a time."""
FILES = {"adapter_config.json": b"{}", "adapter_model.safetensors": BIG}


class Place:
    """A tenant with a checkpoint of each kind, and the routes that read them."""

    def __init__(self, folder: Path) -> None:
        self.database = Database.open(f"sqlite:///{folder}/plait.db")
        self.database.submit(fill).result(60)
        self.folders, self.store = DataFolders(folder), CheckpointStore(self.database)
        self.external_files = ExternalFiles(self.store, UrlSigner(b"s" * 32))
        for kind in KINDS:
            self.save(kind, 1)
        app = FastAPI()
        app.state.service = SimpleNamespace(
            checkpoints=self.store, external_files=self.external_files, audit=SimpleNamespace(tell=_tell)
        )
        app.dependency_overrides[principal_of] = _ann
        app.include_router(checkpoint_files.router)
        app.include_router(external_weights.router)
        app.add_exception_handler(PlaitError, _on_plait_error)
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    def save(self, kind: Any, seq_id: int) -> str | None:
        """Under the same name, whatever was there; the folder of that."""
        folder = self.folders.checkpoint("ann", MODEL, SEGMENTS[kind], f"a@{seq_id}")
        folder.mkdir(parents=True)
        for name, content in FILES.items():
            (folder / name).write_bytes(content)
        row = make_checkpoint(
            "a", kind=kind, folder=str(folder), digest=str(seq_id), size_bytes=9, lora={"rank": 8, "target_modules": []}
        )
        row.tinker_path = KINDS[kind]
        old = self.database.submit(checkpoints.replace_checkpoint, row).result(60)
        return None if old is None else old.folder

    async def delete(self, path: str) -> None:
        await self.store.delete(path, "ann")

    async def replace(self, path: str) -> None:
        old = await asyncio.to_thread(self.save, "training" if path == TRAINING else "external", 2)
        assert old is not None
        await self.store.remove_folder(old)

    async def get(self, url: str, **more: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=self._transport, base_url="http://t") as client:
            return await client.get(url, **more)


async def _ann() -> Principal:
    return ANN


async def _tell(*_: Any, **__: Any) -> None:
    """No audit log here."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.database.stop()


class Meanwhile:
    """Lets `work` happen once, after `look` looks at files of a checkpoint, which is in a thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Callable[[], Awaitable[None]], look: int = 1) -> None:
        self.work: Callable[[], Awaitable[None]] | None = work
        self._loop, self._looks_left = asyncio.get_running_loop(), look
        stat = Path.stat

        def after_stat(path: Path, **more: Any) -> Any:
            found = stat(path, **more)
            if "a@1" in path.parts[:-1]:
                self._looks_left -= 1
                self.happen()
            return found

        monkeypatch.setattr(Path, "stat", after_stat)

    def happen(self) -> None:
        if self._looks_left == 0 and self.work is not None:
            work, self.work = self.work, None
            asyncio.run_coroutine_threadsafe(_run(work), self._loop).result(60)


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()


URLS = {
    "list": ("/v1/checkpoint_files", {"path": TRAINING}),
    "read": ("/v1/checkpoint_files/adapter_model.safetensors", {"path": TRAINING}),
    "addresses": (f"/api/v1/training_runs/{MODEL}/checkpoints/external_weights/a/external_weights_urls", {}),
}


@pytest.mark.parametrize("what", URLS)
@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("look", [1, 2, 4])
def test_one_that_goes_while_its_files_are_listed(
    place: Place, monkeypatch: pytest.MonkeyPatch, what: str, is_replaced: bool, look: int
) -> None:
    async def drive() -> None:
        url, params = URLS[what]
        whole = await place.get(url, params=params)
        path = EXTERNAL if what == "addresses" else TRAINING
        meanwhile = Meanwhile(monkeypatch, lambda: place.replace(path) if is_replaced else place.delete(path), look)
        found = await place.get(url, params=params)
        assert meanwhile.work is None, "nothing happened meanwhile"
        if not is_replaced:
            assert found.status_code == 404
            assert f"there is no checkpoint '{path}'" in found.json()["detail"]
        elif what == "addresses":
            assert len(found.json()["urls"]) == len(FILES)
        else:
            assert found.content == whole.content

    asyncio.run(drive())


@pytest.mark.parametrize("headers", [{}, {"range": "bytes=100000-200000"}])
def test_a_file_that_goes_before_it_is_sent(place: Place, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]) -> None:
    send = FileResponse.__call__

    async def after_deletion(self: FileResponse, *args: Any) -> None:
        for path in KINDS.values():
            await place.replace(path)
            await place.delete(path)
        await send(self, *args)

    async def drive(url: str, **more: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(FileResponse, "__call__", after_deletion)
            found = await place.get(url, headers=headers, **more)
        assert found.content == (BIG[100000:200001] if headers else BIG)
        assert found.status_code == (206 if headers else 200)
        assert not list(place.folders.root.rglob("adapter_model.safetensors"))

    url, params = URLS["read"]
    asyncio.run(drive(url, params=params))


def test_an_address_of_a_file_that_goes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def drive() -> None:
        urls = (await place.get(URLS["addresses"][0])).json()["urls"]
        address = urls["adapter_model.safetensors"]
        assert ROUTE in address
        assert (await place.get(address)).content == BIG
        Meanwhile(monkeypatch, lambda: place.delete(EXTERNAL))
        assert (await place.get(address)).status_code == 403

    asyncio.run(drive())


def test_a_folder_loses_its_name_before_a_file_goes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    removed, rmtree = list[Path](), shutil.rmtree

    def watch(path: Path, **more: Any) -> None:
        if path.exists():
            removed.append(path)
            assert not [name for name in FILES if list(place.folders.root.rglob(f"weights/a@1/{name}"))]
        rmtree(path, **more)

    monkeypatch.setattr(shutil, "rmtree", watch)
    asyncio.run(place.delete(TRAINING))
    assert removed
    assert not list(place.folders.root.rglob("weights/*"))


def test_a_sampler_keeps_the_files_or_is_not_made(place: Place) -> None:
    """Whichever of the two comes first."""

    async def drive() -> None:
        sessions: Any = SimpleNamespace(owned=lambda *_: None)
        samplers = Samplers(place.database, sessions, ())
        request = CreateSamplingSessionRequest(session_id="s", sampling_session_seq_id=1, model_path=TRAINING)
        made, _ = await asyncio.gather(samplers.create(ANN, request), place.delete(TRAINING), return_exceptions=True)
        if isinstance(made, BaseException):
            assert isinstance(made, NotFound)
        else:
            adapter = (await samplers.get(made, "ann")).adapter
            assert adapter is not None
            assert Path(adapter.path).is_dir()

    asyncio.run(drive())


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_copy_is_of_what_its_row_says(place: Place, monkeypatch: pytest.MonkeyPatch, is_linked: bool) -> None:
    copier = WeightsCopier(place.database, place.store, place.folders, StoredLimit(place.store, lambda _: None))
    request = CopyWeightsRequest(source_path=TRAINING, destination_project_id="p")

    async def drive() -> None:
        loop, work = asyncio.get_running_loop(), [place.replace]
        link = copying.link_folder

        def link_and_replace(source: Path, target: Path) -> None:
            if is_linked:
                link(source, target)
            if work:
                asyncio.run_coroutine_threadsafe(_run(lambda: work.pop()(TRAINING)), loop).result(60)
            if not is_linked:
                link(source, target)

        monkeypatch.setattr(copying, "link_folder", link_and_replace)
        if is_linked:
            with pytest.raises(NotFound, match="replaced meanwhile"):
                await copier.copy(ANN, request, None)
            return
        copy = await place.store.get(await copier.copy(ANN, request, None), "ann")
        assert copy.digest == "2"
        assert {path.name for path in Path(copy.folder).iterdir()} == FILES.keys()

    asyncio.run(drive())


def test_a_task_cannot_begin_from_one_that_goes(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings: Any = SimpleNamespace(tasks=[SimpleNamespace(name="a")], model_of=lambda task: "base")
    monkeypatch.setattr(starts, "starts_of", lambda _: {"a": TRAINING})
    keeper = starts.Starts(place.store, ServerSettings.model_construct(), lambda *_: None)

    async def drive() -> None:
        Meanwhile(monkeypatch, lambda: place.delete(TRAINING))
        directory = RunDirectory(tmp_path / "run")
        with pytest.raises(ConfigError, match="you have no such checkpoint"):
            async with keeper.keeping("ann", SimpleNamespace(settings=settings), directory):  # type: ignore[arg-type]
                raise AssertionError("it was kept")
        assert not directory.path.exists()

    asyncio.run(drive())


def test_a_copy_for_a_run_that_was_not_stored_goes_with_the_next_start(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a kill between the two, or in the midst of copying. What was stored or has begun stays."""
    runs = {name: RunDirectory(place.folders.runs("ann") / name) for name in ("killed", "torn", "stored", "begun")}
    for name, run in runs.items():
        run.start_folder("a").mkdir(parents=True)
        (run.start_folder("a") / "adapter_model.safetensors").write_bytes(BIG)
        if name == "torn":
            run.start_folder("a").rename(run.start_folder("a").with_name(".tmp-start"))
    runs["begun"].config.write_text("")
    row = ManagedRun(run_id="stored", tenant_id="ann", state="queued", toml="", folder=str(runs["stored"].path), created_s=1.0)
    place.database.submit(managed.add_run, row).result(60)
    keeper = starts.Starts(place.store, ServerSettings.model_construct(), lambda *_: None)
    asyncio.run(keeper.remove_unknown(place.folders))
    assert sorted(path.name for path in place.folders.of_runs()) == ["begun", "stored"]


@pytest.mark.parametrize("what", ["nothing", "delete", "replace"])
def test_loading_one_that_goes_is_the_callers_error(place: Place, what: str) -> None:
    async def fail(_: Any) -> None:
        if what != "nothing":
            await getattr(place, what)(TRAINING)
        raise CallError("record.json is damaged", is_user_error=False)

    trainer: Any = SimpleNamespace(call=fail)
    saving = Saving(trainer, place.folders, place.store, StoredLimit(place.store, lambda _: None), lambda *_: None)
    runner: Any = SimpleNamespace(opening=SimpleNamespace(tenant="ann"), base_model="base")
    request = LoadWeightsRequest(model_id=MODEL, seq_id=1, path=TRAINING, optimizer=False)
    with pytest.raises(PlaitError) as caught:
        asyncio.run(saving.load(runner, Call(MODEL, 1, Kind.LOAD, request.model_dump_json().encode())))
    assert isinstance(caught.value, NotFound) == (what == "delete")
    assert getattr(caught.value, "is_user_error", None) == {"nothing": False, "delete": None, "replace": True}[what]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_request_whose_checkpoint_goes_is_told_so(place: Place, is_deleted: bool) -> None:
    async def drive() -> None:
        row = await place.store.get(TRAINING, "ann")
        policy = PolicyVersion("ann", MODEL, 1)
        sampler = SamplerInfo("r", "ann", "", "base", policy, AdapterRef(policy, row.folder, "1"), TRAINING)

        async def fail(_: Any) -> None:
            if is_deleted:
                await place.delete(TRAINING)
            raise RolloutError("adapter_model.safetensors is damaged")

        backend: Any = SimpleNamespace(rollout=SimpleNamespace(generate=fail))
        absent: Any = None
        sampling = Sampling(lambda _: backend, absent, absent, absent, 1, lambda *_: None)
        call: Any = SimpleNamespace(
            sampler=sampler, generations=lambda: [SimpleNamespace(tokens=())], prompt_score=lambda: None,
            alternatives_score=lambda: None,
        )  # fmt: skip
        with pytest.raises(BaseException) as caught:  # noqa: PT011
            await sampling._sample(call, absent)
        assert isinstance(caught.value, NotFound) == is_deleted

    asyncio.run(drive())
