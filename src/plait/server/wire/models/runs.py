"""Training runs: models as resources."""

from datetime import datetime

from plait.server.wire.models.base import Cursor, Metadata, Response
from plait.server.wire.models.checkpoints import Checkpoint


class TrainingRun(Response):
    training_run_id: str
    """The model's id."""
    base_model: str
    model_owner: str
    is_lora: bool = True
    corrupted: bool = False
    lora_rank: int | None = None
    last_request_time: datetime
    last_checkpoint: Checkpoint | None = None
    last_sampler_checkpoint: Checkpoint | None = None
    user_metadata: Metadata | None = None


class TrainingRunsResponse(Response):
    training_runs: list[TrainingRun]
    cursor: Cursor
