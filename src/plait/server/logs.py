"""What the service logs: a record a line, with the request or call that it belongs to, and without keys.

- `note` adds fields to whatever the running task works on; every record of it carries them from then on.
- "json": one object a line: time (ISO 8601, UTC), level, logger, message, the noted fields, exception.
- Keys are cut down to their public id wherever they turn up.
"""

import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, Any, Literal

HTTP_LOGGER = "plait.http"
TEXT = "%(asctime)s %(levelname)s %(message)s"
_KEY = re.compile(r"\b(tml-[0-9a-zA-Z]+)-[\w-]{8,}")
_fields: ContextVar[dict[str, Any] | None] = ContextVar("plait_log_fields", default=None)


def begin(**fields: Any) -> dict[str, Any]:
    """The running task begins something new: forget what was noted before. Returns what will have been noted by its end."""
    noted = dict(fields)
    _fields.set(noted)
    return noted


def note(**fields: Any) -> None:
    """Known from now on, such as tenant=..., model_id=...; None says nothing."""
    noted = _fields.get()
    if noted is not None:
        noted.update((name, value) for name, value in fields.items() if value is not None)


def noted_fields() -> dict[str, Any]:
    return dict(_fields.get() or {})


def set_up_logging(log_format: Literal["text", "json"], stream: IO[str] | None = None) -> None:
    """For the whole process. Text leaves out the requests that went well."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter(TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger(HTTP_LOGGER).setLevel(logging.INFO if log_format == "json" else logging.WARNING)
    for library in ("alembic", "httpx"):
        logging.getLogger(library).setLevel(logging.WARNING)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        request_id = noted_fields().get("request_id")
        return without_keys(super().format(record)) + (f" [{request_id}]" if request_id else "")


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **noted_fields(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return without_keys(json.dumps(entry, default=str, ensure_ascii=False))


def without_keys(text: str) -> str:
    return _KEY.sub(r"\1-***", text)
