"""Checkpoints as resources."""

from datetime import datetime
from typing import Literal

from pydantic import model_validator

from plait.server.wire.models.base import Cursor, Identifier, Metadata, Request, Response, SeqId, TtlSeconds

CheckpointType = Literal["training", "sampler", "external"]


class Checkpoint(Response):
    checkpoint_id: str
    """The last two segments of `tinker_path`: `weights/{name}`."""
    checkpoint_type: CheckpointType
    time: datetime
    tinker_path: str
    size_bytes: int | None = None
    public: bool = False
    user_metadata: Metadata | None = None
    expires_at: datetime | None = None


class CheckpointsResponse(Response):
    checkpoints: list[Checkpoint]
    cursor: Cursor | None = None


class CheckpointTtlRequest(Request):
    ttl_seconds: TtlSeconds | None
    """None: it never expires."""


class ExternalWeightsUrlsResponse(Response):
    urls: dict[str, str]
    """Of each file; fetched without a key."""
    expires: datetime


class WeightsInfoRequest(Request):
    tinker_path: Identifier


class WeightsInfoResponse(Response):
    base_model: str
    is_lora: bool = True
    lora_rank: int | None = None
    train_unembed: bool | None = None
    train_mlp: bool | None = None
    train_attn: bool | None = None


class CopyWeightsRequest(Request):
    source_path: Identifier
    session_id: Identifier | None = None
    model_seq_id: SeqId | None = None
    destination_project_id: Identifier | None = None
    ttl_seconds: TtlSeconds | None = None
    weights_access_token: str | None = None

    @model_validator(mode="after")
    def _has_one_destination(self) -> "CopyWeightsRequest":
        place = (self.session_id, self.model_seq_id)
        if (None in place) != (place == (None, None)) or (self.session_id is None) == (self.destination_project_id is None):
            raise ValueError("give either session_id and model_seq_id, or destination_project_id")
        return self


class CopyWeightsResponse(Response):
    tinker_path: str
