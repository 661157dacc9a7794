"""Errors that have a status of their own over HTTP. Every other PlaitError is 422: the input is at fault."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from plait.types.errors import PlaitError


class ServiceError(PlaitError):
    """`status` is the HTTP status; `retry_after_s` says when to try again, where that helps."""

    status = 422

    def __init__(self, message: str, remedy: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, remedy)
        self.retry_after_s = retry_after_s


class Unauthorized(ServiceError):
    status = 401


class Forbidden(ServiceError):
    status = 403


class NotFound(ServiceError):
    """There is no such thing, or it is another tenant's: a stranger cannot tell which."""

    status = 404

    def __init__(self, kind: str, name: str, remedy: str = "Check the name, and that the key is the one that made it.") -> None:
        super().__init__(f"there is no {kind} {name!r}.", remedy)


def invalid_body(problem: Mapping[str, Any]) -> str:
    """One fault of a request as FastAPI tells it: field and what is wrong with it."""
    if problem["type"] == "json_invalid":
        return f"the body is not JSON: {problem.get('ctx', {}).get('error', problem['msg'])}, at character {problem['loc'][-1]}"
    return f"{'.'.join(str(part) for part in problem['loc'][1:])}: {problem['msg']}"


class Gone(ServiceError):
    """It was there: a finished session, an expired future."""

    status = 410


class TooMany(ServiceError):
    """Back-pressure or a quota; the same request may be sent again later."""

    status = 429


def not_served(name: str, names: Sequence[str]) -> ServiceError:
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    return ServiceError(
        f"base_model {name!r} is not served.",
        f"{meant}Served: {', '.join(names)}. The operator may add names for them (`aliases`).",
    )
