"""What one client does: each kind of call that leaves something durable, and what all of it comes to.

The client tells of each acknowledgement and each result before it goes on. Played again after a crash, it sends everything once
more, as a client does that saw its connection end.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.types.forward_backward_request import ForwardBackwardRequest

from plait.server.call import Call, Kind
from plait.server.database import tables as t
from plait.server.database.database import Database
from plait.server.database.sessions import add_session
from plait.server.database.tenants import ensure_tenant
from plait.server.names import model_id_of, parse_call_request_id
from plait.server.tinker_path import TinkerPath
from plait.state.checkpoint import read_checkpoint, read_checkpoint_adapter, read_checkpoint_optimizer
from plait.state.records import latest_record
from tests.server.crash.stand import TENANT, Stand
from tests.server.e2e.data import datum

SESSION = "s"
MODEL, SECOND = model_id_of(SESSION, 0), model_id_of(SESSION, 1)
LORA = {"rank": 2, "alpha": 4.0, "target_modules": ["q_proj", "down_proj"], "seed": 3}
STATE = str(TinkerPath(MODEL, "training", "state"))
Tell = Callable[[dict[str, Any]], None]


def prepare(folder: Path) -> None:
    """A database with the session."""
    database = Database.open(f"sqlite:///{folder}/plait.db")
    database.submit(_add_session).result(60)
    database.stop()


def _add_session(session: Any) -> None:
    ensure_tenant(session, TENANT)
    add_session(session, t.ClientSession(session_id=SESSION, tenant_id=TENANT, created_s=1.0, heartbeat_s=1.0))


def calls() -> list[list[Call]]:
    """In groups that are sent together."""
    return [
        [_create()],
        [_backward(1, 5), _backward(2, 9), _step(3)],
        [_save(4, name="state")],
        [_save_for_sampler(5)],
        [_backward(6, 20), _step(7)],
        [_load(8)],
        [_save(9, name="state", overwrite=True)],
        [_backward(10, 40), _step(11)],
        [_backward(12, 60)],
        [_load(0, model_id=SECOND)],
    ]


def _create() -> Call:
    return Call(MODEL, 0, Kind.CREATE, b"{}")


def _backward(seq_id: int, start: int) -> Call:
    tokens = [(start + 7 * index) % 90 for index in range(7)]
    data = [datum(tokens[:-1], target_tokens=tokens[1:], weights=[1.0] * 6)]
    content = types.ForwardBackwardInput(data=data, loss_fn="cross_entropy")
    request = ForwardBackwardRequest(forward_backward_input=content, model_id=MODEL, seq_id=seq_id)
    return Call(MODEL, seq_id, Kind.FORWARD_BACKWARD, forward_backward_request_to_proto(request).SerializeToString())


def _of_json(kind: Kind, seq_id: int, model_id: str = MODEL, **body: Any) -> Call:
    content = {"model_id": model_id, "seq_id": seq_id, **body}
    return Call(model_id, seq_id, kind, json.dumps(content).encode())


def _step(seq_id: int) -> Call:
    return _of_json(Kind.OPTIM_STEP, seq_id, adam_params={"learning_rate": 1e-2})


def _save(seq_id: int, name: str, overwrite: bool = False) -> Call:
    return _of_json(Kind.SAVE, seq_id, path=name, overwrite=overwrite)


def _save_for_sampler(seq_id: int) -> Call:
    return _of_json(Kind.SAVE_FOR_SAMPLER, seq_id, path="sampled")


def _load(seq_id: int, model_id: str = MODEL) -> Call:
    """As the first call of a model: it begins there."""
    return _of_json(Kind.LOAD, seq_id, model_id, path=STATE, optimizer=True)


async def check_known(stand: Stand, request_ids: list[str]) -> None:
    """What was acknowledged is there before anybody sends it again."""
    for request_id in request_ids:
        model_id, seq_id = parse_call_request_id(request_id) or ("", 0)
        assert await stand.models.journal.get(model_id, seq_id) is not None, f"{request_id} was acknowledged, and is lost"


async def play(stand: Stand, tell: Tell, known: dict[str, str]) -> None:
    """Send all; `known` are digests of results that the client had before, which must be the same now."""
    for group in calls():
        requests = []
        for call in group:
            requests.append(await _send(stand, call))
            tell({"acknowledged": call.request_id})
        for request_id in requests:
            digest = hashlib.sha256(await stand.result(request_id)).hexdigest()
            assert known.get(request_id, digest) == digest, f"{request_id} had another result before"
            tell({"result": request_id, "digest": digest})


async def _send(stand: Stand, call: Call) -> str:
    if call.seq_id:
        return await stand.models.submit(TENANT, call)
    source = "" if call.kind == Kind.CREATE else (await stand.checkpoints.get(STATE, TENANT)).folder
    model = t.Model(
        model_id=call.model_id, session_id=SESSION, tenant_id=TENANT, base_model="base", lora=LORA, created_s=1.0,
        last_request_s=1.0, source_folder=source, with_optimizer=bool(source),
    )  # fmt: skip
    return await stand.models.create(model, call)


async def summary(stand: Stand) -> dict[str, Any]:
    """What is left behind: of each model its latest version, of each checkpoint what it holds. Raises if anything is torn."""
    versions = {name: _version(stand.folders.steps(TENANT, name)) for name in (MODEL, SECOND)}
    listed = await stand.listed()
    found = {str(folder) for folder in stand.folders.root.glob("tenants/*/models/*/*weights/*")}
    temporaries = [str(path) for path in stand.folders.root.rglob(".tmp-*")]
    return {
        "versions": versions,
        "checkpoints": {row.tinker_path: [row.version, row.size_bytes, _digest(row)] for row in listed},
        "unlisted": sorted(found - {row.folder for row in listed}),
        "temporaries": temporaries,
    }


def _version(steps: Path) -> list[Any]:
    latest = latest_record(steps)
    assert latest.record is not None
    record = latest.record
    return [record.step, record.data_cursor, record.adapter_digest, record.optimizer_digest, list(latest.damage)]


def _digest(row: t.Checkpoint) -> str:
    folder = Path(row.folder)
    record = read_checkpoint(folder)
    read_checkpoint_adapter(folder, record)
    if row.has_optimizer:
        read_checkpoint_optimizer(folder, record)
    assert record.adapter_digest == row.digest
    return record.adapter_digest
