"""Rows for tests, with what does not matter filled in, and a writer that waits."""

import threading
from typing import Any

from sqlalchemy.orm import Session

from plait.server.database.calls import add_call
from plait.server.database.database import Database
from plait.server.database.models import add_model
from plait.server.database.sessions import add_session
from plait.server.database.tables import Call, Checkpoint, ClientSession, Model
from plait.server.database.tenants import ensure_tenant


def make_session(session_id: str = "s", tenant_id: str = "ann", created_s: float = 1.0, **more: Any) -> ClientSession:
    return ClientSession(session_id=session_id, tenant_id=tenant_id, created_s=created_s, heartbeat_s=created_s, **more)


def make_model(model_id: str = "s:train:0", session_id: str = "s", tenant_id: str = "ann", created_s: float = 1.0) -> Model:
    return Model(
        model_id=model_id,
        session_id=session_id,
        tenant_id=tenant_id,
        base_model="base",
        lora={"rank": 8, "alpha": 32.0},
        created_s=created_s,
        last_request_s=created_s,
    )


def make_call(seq_id: int, model_id: str = "s:train:0", **more: Any) -> Call:
    more = {"kind": "forward_backward", "payload": b"payload", "payload_digest": f"digest{seq_id}", "created_s": 1.0, **more}
    return Call(model_id=model_id, seq_id=seq_id, **more)


def make_checkpoint(name: str = "a", tenant_id: str = "ann", model_id: str = "s:train:0", **more: Any) -> Checkpoint:
    kind = more.pop("kind", "training")
    folder = "weights" if kind == "training" else "sampler_weights"
    more = {"created_s": 1.0, "size_bytes": 100, "base_model": "base", "lora": {"rank": 8}, "digest": "d", "folder": "f", **more}
    path = f"tinker://{model_id}/{folder}/{name}"
    return Checkpoint(tinker_path=path, tenant_id=tenant_id, model_id=model_id, kind=kind, name=name, **more)


def fill(session: Session, num_calls: int = 0, tenant_id: str = "ann", session_id: str = "s") -> None:
    """A tenant with a session and a model."""
    model_id = f"{session_id}:train:0"
    ensure_tenant(session, tenant_id)
    add_session(session, make_session(session_id, tenant_id))
    add_model(session, make_model(model_id, session_id, tenant_id))
    for seq_id in range(num_calls):
        add_call(session, make_call(seq_id, model_id))


def hold(database: Database) -> threading.Event:
    """Keep the writer busy until the event is set, so that what is submitted meanwhile waits together."""
    started, release = threading.Event(), threading.Event()

    def wait(_session: Session) -> None:
        started.set()
        assert release.wait(60)

    database.submit(wait)
    assert started.wait(60)
    return release


def ids(page: tuple[list[Any], int], name: str) -> tuple[list[str], int]:
    """Of a page: that attribute of each row, and the total."""
    return [getattr(row, name) for row in page[0]], page[1]
