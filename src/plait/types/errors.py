"""Errors that tell a person what is wrong and what to do about it."""


class PlaitError(Exception):
    """Base of every error Plait raises on purpose.

    `message` says what is wrong, naming the field and the value; `remedy` says what to do.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.message = message
        self.remedy = remedy


class ConfigError(PlaitError):
    """A setting is unknown, out of range or does not fit another setting."""


class ModelError(PlaitError):
    """A model cannot be found, read or run."""


class AdapterError(PlaitError):
    """An adapter file does not fit the model or its own description."""


class CapacityError(PlaitError):
    """A request can never fit the memory that was granted."""


class PolicyError(PlaitError):
    """A batch breaks its task's promise about policy versions."""


class StateError(PlaitError):
    """A run directory is missing, torn or in use."""


class EnvironmentFailure(PlaitError):
    """An environment or verifier raised, timed out or died; never a reward of zero."""


class WorkerFailure(PlaitError):
    """A worker process died or reported an error it could not attribute to one request."""
