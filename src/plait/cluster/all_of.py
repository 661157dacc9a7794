"""Several things at once, each to its end."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

Result = TypeVar("Result")


async def all_of(works: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """What each gave, in their order. Raises the first error, in their order, when all have come to an end."""
    results: list[Result] = []
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
