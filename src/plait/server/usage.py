"""What tenants use, counted in memory and added to the database now and then."""

import time
from collections import defaultdict

import msgspec
from sqlalchemy.orm import Session

from plait.server.database.database import Database
from plait.server.database.usage import Usage, add_usage
from plait.server.sample_call import SampleCall, Sampled


class UsageMeter:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: defaultdict[tuple[str, str], Usage] = defaultdict(Usage)

    def trained(self, tenant_id: str, base_model: str, num_tokens: int, device_s: float) -> None:
        self._add(tenant_id, base_model, Usage(trained_tokens=num_tokens, device_s=device_s, num_requests=1))

    def sampled(self, call: SampleCall, sampled: Sampled) -> None:
        num_prompt, num_sampled = len(call.prompt_tokens), sum(len(segment.tokens) for segment in sampled.segments)
        cached = min(sampled.num_cached_tokens, num_prompt)
        usage = Usage(prompt_tokens=num_prompt - cached, cached_tokens=cached, sampled_tokens=num_sampled, num_requests=1)
        self._add(call.sampler.tenant_id, call.sampler.base_model, usage)

    def generated(self, tenant_id: str, base_model: str, num_prompt: int, num_cached: int, num_sampled: int) -> None:
        """One generation of a managed task."""
        cached = min(num_cached, num_prompt)
        usage = Usage(prompt_tokens=num_prompt - cached, cached_tokens=cached, sampled_tokens=num_sampled, num_requests=1)
        self._add(tenant_id, base_model, usage)

    def _add(self, tenant_id: str, base_model: str, usage: Usage) -> None:
        so_far = msgspec.structs.asdict(self._waiting[tenant_id, base_model])
        self._waiting[tenant_id, base_model] = Usage(**{name: so_far[name] + value for name, value in _items(usage)})

    async def flush(self) -> None:
        """Add to the database what has come together; if that fails, it waits for the next time."""
        waiting, self._waiting = self._waiting, defaultdict(Usage)
        if not waiting:
            return
        try:
            await self._database.run(lambda session: _add_all(session, waiting))
        except Exception:
            for (tenant_id, base_model), usage in waiting.items():
                self._add(tenant_id, base_model, usage)
            raise


def _items(usage: Usage) -> list[tuple[str, float]]:
    return list(msgspec.structs.asdict(usage).items())


def _add_all(session: Session, waiting: dict[tuple[str, str], Usage]) -> None:
    for (tenant_id, base_model), usage in waiting.items():
        add_usage(session, tenant_id, base_model, time.time(), usage)
