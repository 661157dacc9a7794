"""Fields of OpenAI's requests that have no effect here: accepted with the values that ask for nothing, refused with any other."""

from typing import Any

from pydantic_core import PydanticCustomError

IGNORED = ("user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "verbosity")
"""Notes of the caller's that change nothing in an answer."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True,),
    "prediction": (),
    "presence_penalty": (0,),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "web_search_options": (),
}


def only_served(data: Any, known: frozenset[str]) -> Any:
    """The fields that have an effect. Raises PydanticCustomError, with the field's name as `param`, for one that cannot have it."""
    if not isinstance(data, dict):
        return data
    for name, value in data.items():
        if name in known or name in IGNORED or value is None:
            continue
        if name not in NEUTRAL:
            raise _refused(name, f"{name} is not a field that is known here.")
        if value not in NEUTRAL[name]:
            raise _refused(name, f"{name} = {value!r} is not served; leave it out.")
    return {name: value for name, value in data.items() if name in known}


def _refused(name: str, message: str) -> PydanticCustomError:
    return PydanticCustomError("unsupported_parameter", "{message}", {"message": message, "param": name})
