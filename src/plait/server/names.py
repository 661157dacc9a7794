"""How sessions, models, samplers and requests are called. The SDK computes some of these by itself."""

import secrets


def new_session_id() -> str:
    """No colon in it: what comes after one says what of the session is meant."""
    return secrets.token_hex(16)


def model_id_of(session_id: str, model_seq_id: int) -> str:
    return f"{session_id}:train:{model_seq_id}"


def sampler_id_of(session_id: str, sampling_session_seq_id: int) -> str:
    return f"{session_id}:sample:{sampling_session_seq_id}"


def session_id_of(name: str) -> str:
    """Of anything in a session."""
    return name.partition(":")[0]


def sample_request_id(sampler_id: str, seq_id: int) -> str:
    return f"{sampler_id}:request:{seq_id}"


def parse_call_request_id(request_id: str) -> tuple[str, int] | None:
    """(model_id, seq_id) if it names a call of a model."""
    model_id, _, seq_id = request_id.rpartition(":call:")
    return (model_id, int(seq_id)) if model_id and seq_id.isdecimal() and len(seq_id) < 20 else None


def parse_sample_request_id(request_id: str) -> str | None:
    """The sampler_id if it names a request to sample."""
    sampler_id, _, seq_id = request_id.rpartition(":request:")
    return sampler_id if sampler_id and seq_id.isdecimal() else None
