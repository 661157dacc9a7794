"""Saving and loading the weights of models."""

from typing import Literal

from pydantic import model_validator

from plait.server.wire.models.base import (
    AnyMetadata,
    CheckpointName,
    Identifier,
    Metadata,
    Request,
    Response,
    SeqId,
    TtlSeconds,
)
from plait.server.wire.models.training import OptimizerConfig


class SaveWeightsRequest(Request):
    model_id: Identifier
    seq_id: SeqId
    path: CheckpointName | None = None
    """A name; None: the server's choice."""
    ttl_seconds: TtlSeconds | None = None
    overwrite: bool = False
    user_metadata: Metadata | None = None


class SaveWeightsResponse(Response):
    path: str
    """`tinker://{model_id}/weights/{name}`."""
    type: Literal["save_weights"] = "save_weights"


class SaveWeightsForSamplerRequest(Request):
    """Either a named checkpoint (`path`) or a sampling session of its own (`sampling_session_seq_id`)."""

    model_id: Identifier
    seq_id: SeqId
    path: CheckpointName | None = None
    sampling_session_seq_id: SeqId | None = None
    kind: Literal["snapshot", "inflight"] = "snapshot"
    ttl_seconds: TtlSeconds | None = None
    user_metadata: Metadata | None = None

    @model_validator(mode="after")
    def _has_one_target(self) -> "SaveWeightsForSamplerRequest":
        if (self.path is None) == (self.sampling_session_seq_id is None):
            raise ValueError("give either path or sampling_session_seq_id")
        return self


class SaveWeightsForSamplerResponse(Response):
    path: str | None = None
    """`tinker://{model_id}/sampler_weights/{name}`."""
    sampling_session_id: str | None = None
    type: Literal["save_weights_for_sampler"] = "save_weights_for_sampler"


class SaveWeightsExternalRequest(Request):
    model_id: Identifier
    seq_id: SeqId
    path: CheckpointName
    ttl_seconds: TtlSeconds | None = None
    age_encryption_recipients: list[str] | None = None


class SaveWeightsExternalResponse(Response):
    path: str
    """`tinker://{model_id}/external_weights/{name}`."""
    size_bytes: int | None = None
    type: Literal["save_weights_external"] = "save_weights_external"


class LoadWeightsRequest(Request):
    """A new model from a checkpoint (session_id, model_seq_id), or into one that was just created (model_id, seq_id)."""

    path: Identifier
    optimizer: bool
    """Take the optimizer's moments too."""
    session_id: Identifier | None = None
    model_seq_id: SeqId | None = None
    model_id: Identifier | None = None
    seq_id: SeqId | None = None
    base_model: Identifier | None = None
    user_metadata: AnyMetadata | None = None
    optimizer_config: OptimizerConfig | None = None
    weights_access_token: str | None = None

    @property
    def creates_model(self) -> bool:
        return self.session_id is not None

    @model_validator(mode="after")
    def _has_one_address(self) -> "LoadWeightsRequest":
        new = (self.session_id, self.model_seq_id)
        old = (self.model_id, self.seq_id)
        whole, other = (new, old) if self.session_id is not None else (old, new)
        if None in whole or any(part is not None for part in other):
            raise ValueError("give either session_id and model_seq_id, or model_id and seq_id")
        return self


class LoadWeightsResponse(Response):
    path: str | None = None
    model_id: str | None = None
    type: Literal["load_weights"] = "load_weights"
