"""The audit log: who did what to keys, sessions, models, checkpoints, tasks and uploads.

- What changes the database writes its entry in the same work (`add`), so that neither is stored without the other.
- What took place elsewhere is told with `tell`, or with `tell_soon` where nobody can wait.
- Entries name objects, never secrets.
"""

import json
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import Any

from sqlalchemy.orm import Session

from plait.server.call import Call, CallResult, Kind
from plait.server.database import audit
from plait.server.database.database import Database
from plait.server.database.tables import AuditEntry
from plait.server.errors import ServiceError
from plait.server.principal import Principal

log = logging.getLogger("plait.server")


class Action(StrEnum):
    """`<noun>_<verb>`."""

    KEY_CREATE = "key_create"
    KEY_REVOKE = "key_revoke"
    TENANT_CHANGE = "tenant_change"
    SESSION_CREATE = "session_create"
    SESSION_FINISH = "session_finish"
    PROJECT_ASSIGN = "project_assign"
    """A session moved into a project."""
    MODEL_CREATE = "model_create"
    MODEL_UNLOAD = "model_unload"
    CHECKPOINT_CREATE = "checkpoint_create"
    CHECKPOINT_READ = "checkpoint_read"
    CHECKPOINT_COPY = "checkpoint_copy"
    CHECKPOINT_PUBLISH = "checkpoint_publish"
    CHECKPOINT_UNPUBLISH = "checkpoint_unpublish"
    CHECKPOINT_SET_TTL = "checkpoint_set_ttl"
    CHECKPOINT_DELETE = "checkpoint_delete"
    TASK_SUBMIT = "task_submit"
    TASK_PAUSE = "task_pause"
    TASK_RESUME = "task_resume"
    TASK_CANCEL = "task_cancel"
    UPLOAD_CREATE = "upload_create"
    UPLOAD_DELETE = "upload_delete"


NOUNS_OF_EVENT_TYPE: dict[str, tuple[str, ...] | None] = {
    "all": None,
    "checkpoints": ("checkpoint",),
    "projects": ("project",),
    "teams": ("team",),
    "organizations": ("key", "session", "model", "tenant"),
}
"""What the SDK asks for by type; None: everything."""
ACTION_OF_CALL = {
    Kind.CREATE: Action.MODEL_CREATE,
    Kind.LOAD: Action.CHECKPOINT_READ,
    Kind.SAVE: Action.CHECKPOINT_CREATE,
    Kind.SAVE_FOR_SAMPLER: Action.CHECKPOINT_CREATE,
    Kind.SAVE_EXTERNAL: Action.CHECKPOINT_CREATE,
}


def nouns_of(event_type: str | None) -> Sequence[str] | None:
    """Raises ServiceError if there is no such type."""
    if (event_type or "all") not in NOUNS_OF_EVENT_TYPE:
        raise ServiceError(f"event_type {event_type!r} is unknown.", f"Choose of {', '.join(NOUNS_OF_EVENT_TYPE)}.")
    return NOUNS_OF_EVENT_TYPE[event_type or "all"]


def add(session: Session, who: Principal, action: Action, object_id: str, **detail: Any) -> None:
    """As part of the work that makes the change."""
    audit.add_entry(session, _entry(who.tenant_id, who.key_id, action, object_id, detail))


class Audit:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def tell(self, who: Principal, action: Action, object_id: str, **detail: Any) -> None:
        """Returns once it is stored."""
        entry = _entry(who.tenant_id, who.key_id, action, object_id, detail)
        await self._database.run(lambda session: audit.add_entry(session, entry))

    def tell_soon(self, tenant_id: str, action: Action, object_id: str, **detail: Any) -> None:
        entry = _entry(tenant_id, None, action, object_id, detail)
        self._database.submit(lambda session: audit.add_entry(session, entry)).add_done_callback(_log_failure)

    def call_ended(self, tenant_id: str, call: Call, result: CallResult) -> None:
        """A model's call was carried out. Samplers without a name are no checkpoints, and steps are not told."""
        action = ACTION_OF_CALL.get(call.kind)
        if action is None:
            return
        if action == Action.MODEL_CREATE:
            self.tell_soon(tenant_id, action, call.model_id)
        elif path := json.loads(result.body).get("path"):
            self.tell_soon(tenant_id, action, path, purpose=call.kind.value, model_id=call.model_id)


def _entry(tenant_id: str, key_id: str | None, action: Action, object_id: str, detail: dict[str, Any]) -> AuditEntry:
    return AuditEntry(
        time_s=time.time(), tenant_id=tenant_id, key_id=key_id, action=action.value, object_id=object_id, detail=detail or None
    )  # fmt: skip


def _log_failure(writing: "Future[AuditEntry]") -> None:
    if not writing.cancelled() and (error := writing.exception()) is not None:
        log.error("an audit entry was not stored: %s", error)
