"""The answers to work whose deployment finds no room. Each says which settings are too small."""

from collections.abc import Sequence

from plait.cluster.groups.group_memory import GroupMemory
from plait.cluster.messages import ChunksDone, FromWorker, JobFailed, OpenTask, SubmitChunks, ToWorker, Update
from plait.cluster.model_messages import (
    OPENING,
    CallFailed,
    ForwardBackward,
    LoadModel,
    OpenModel,
    OptimStep,
    PromptScored,
    SaveModel,
    ScorePrompt,
)
from plait.config.task import TaskSettings
from plait.engine.row import failed
from plait.types.errors import PlaitError


def refusal(message: ToWorker, error: str) -> Sequence[FromWorker]:
    """Each call that the message holds fails alone. Nothing for what has no answer."""
    match message:
        case OpenTask(key=key, settings_json=text):
            return [JobFailed(key or TaskSettings.model_validate_json(text).name, error)]
        case Update(task=task):
            return [JobFailed(task, error)]
        case OpenModel(model_id=model_id):
            return [CallFailed(model_id, OPENING, error, is_user_error=False)]
        case ForwardBackward() | OptimStep() | SaveModel() | LoadModel():
            return [CallFailed(message.model_id, message.seq_id, error, is_user_error=False)]
        case SubmitChunks(chunks):
            return [ChunksDone(tuple(failed(chunk, error) for chunk in chunks))]
        case ScorePrompt(request_id=request_id):
            return [PromptScored(request_id, error=error)]
    return []


def no_room_to_open(num_bytes: int, memory: GroupMemory) -> str:
    """For what is opened beside what is open already."""
    return (
        f"{num_bytes} bytes do not fit on the device beside what is open: workers.device_bytes is {memory.device_bytes}. "
        "Raise it, or close others."
    )


def no_place_below(num_bytes: int, memory: GroupMemory) -> str:
    """For what would find no place whenever another deployment has the device."""
    return (
        f"{num_bytes} bytes would find no place while another deployment has the device: {_below(memory)}. "
        "Raise one of them, or close others."
    )


def no_way_onto_device(deployment: str, error: PlaitError, memory: GroupMemory) -> str:
    return (
        f"{deployment} cannot come onto the device ({error.message.rstrip('.')}): workers.device_bytes is {memory.device_bytes}, "
        f"{_below(memory)}. Raise one of them, or close others."
    )


def _below(memory: GroupMemory) -> str:
    host = "all there is" if memory.host_bytes is None else memory.host_bytes
    return f"workers.host_bytes is {host}, workers.disk_bytes is {memory.disk_bytes}"
