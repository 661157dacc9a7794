"""One function call that waits for, or has, a worker group."""

import msgspec


class FunctionCall(msgspec.Struct, frozen=True):
    """A forward_backward, optim_step, turn of sampling, save, load, weight sync."""

    call_id: str
    deployment: str
    """The logical model instance that must be resident while it runs."""
    function: str
    stream: str
    """Calls of one stream (a model) of a deployment run in the order in which they were added, one after another."""
    size_tokens: int
    """What its time grows with; 0 where nothing does."""
    arrival_s: float
    """On the clock of whoever asks the queue."""
