"""What requests and responses share."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

HOUR_S = 3600
TEN_YEARS_S = 10 * 366 * 24 * HOUR_S
MAX_PAGE = 1000


class Request(BaseModel):
    """Unknown fields are ignored: a newer SDK may send them."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=(), use_attribute_docstrings=True)


class Response(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), use_attribute_docstrings=True)


def _as_texts(metadata: object) -> object:
    if isinstance(metadata, dict):
        return {str(key): value if isinstance(value, str) else str(value) for key, value in metadata.items()}
    return metadata


Identifier = Annotated[str, Field(min_length=1, max_length=512)]
SeqId = Annotated[int, Field(ge=0, lt=2**63)]
TtlSeconds = Annotated[int, Field(ge=HOUR_S, le=TEN_YEARS_S)]
CheckpointName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:=+@ -]{0,127}$")]
"""One segment of a `tinker://` path, and of a folder's."""
AnyMetadata = dict[str, Any]
Metadata = Annotated[dict[str, str], BeforeValidator(_as_texts)]
"""The SDK reads texts only; other values are turned into text."""


class Cursor(Response):
    offset: int
    limit: int
    total_count: int


class PageQuery(Request):
    """Of listings."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 20
    offset: Annotated[int, Field(ge=0)] = 0
    access_scope: str = "owned"
    project_id: str | None = None
