"""OpenAI's own client, and what tests ask of it."""

from typing import Any

import openai

from tests.server.server_process import ServerProcess

MESSAGES: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 3 + 4?"}]


def client_of(server: ServerProcess, key: str = "", prefix: str = "/v1") -> openai.OpenAI:
    """The admin's unless a key is given; it does not try again by itself."""
    return openai.OpenAI(base_url=server.url + prefix, api_key=key or server.admin.key, max_retries=0, timeout=120)
