"""Models that a client trains: create, ask, optimise. forward_backward has no JSON."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from plait.server.wire.models.base import AnyMetadata, Identifier, Request, Response, SeqId

MAX_RANK = 512


class LoraConfigRequest(Request):
    rank: Annotated[int, Field(ge=1, le=MAX_RANK)]
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True

    @model_validator(mode="after")
    def _trains_something(self) -> "LoraConfigRequest":
        if not (self.train_unembed or self.train_mlp or self.train_attn):
            raise ValueError("train_unembed, train_mlp and train_attn are all false: nothing would be trained")
        return self


class OptimizerConfig(Request):
    type: str = "adamw"

    @field_validator("type")
    @classmethod
    def _is_served(cls, value: str) -> str:
        if value != "adamw":
            raise ValueError(f"optimizer {value!r} is not served: use 'adamw'")
        return value


class CreateModelRequest(Request):
    session_id: Identifier
    model_seq_id: SeqId
    base_model: Identifier
    user_metadata: AnyMetadata | None = None
    lora_config: LoraConfigRequest | None = None
    optimizer_config: OptimizerConfig = OptimizerConfig()


class CreateModelResponse(Response):
    model_id: str
    type: Literal["create_model"] = "create_model"


class GetInfoRequest(Request):
    model_id: Identifier


class ModelData(Response):
    arch: str | None = None
    model_name: str
    tokenizer_id: str | None = None
    """What the client loads its tokenizer from; None: `model_name`."""


class GetInfoResponse(Response):
    model_id: str
    model_data: ModelData
    is_lora: bool = True
    lora_rank: int | None = None
    model_name: str | None = None
    note: str | None = None
    """What else there is to say."""
    type: Literal["get_info"] = "get_info"


class AdamParams(Request):
    """Of one step. A `grad_clip_norm` of 0 or less is off."""

    learning_rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-4
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    eps: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-12
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    grad_clip_norm: Annotated[float, Field(allow_inf_nan=False)] = 0.0


class OptimStepRequest(Request):
    model_id: Identifier
    seq_id: SeqId
    adam_params: AdamParams
    optimizer_params: None = None
    """What other optimizers would take: never given."""

    @model_validator(mode="before")
    @classmethod
    def _is_adam(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(other := data.get("optimizer_params"), dict):
            raise ValueError(f"optimizer {other.get('type')!r} is not served: send adam_params")
        return data


class OptimStepResponse(Response):
    metrics: dict[str, float] | None = None


class CreateCustomLossRequest(Request):
    """A traced loss. `graph` is torch.fx as JSON, unchecked: losses of clients are not run here."""

    session_id: Identifier
    custom_loss_seq_id: SeqId
    name: str
    inputs: list[dict[str, Any]]
    graph: dict[str, Any]


class UnloadModelRequest(Request):
    model_id: Identifier


class UnloadModelResponse(Response):
    model_id: str
    type: Literal["unload_model"] = "unload_model"
