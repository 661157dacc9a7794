"""Rollouts of one run: counted for its tenant, and as fast as its tokens per minute allow."""

import asyncio
import time
from collections.abc import Sequence

from plait.operations.quotas import Quota, QuotaExceeded, Quotas
from plait.rollout.request import GenerationRequest
from plait.rollout.service import RolloutService
from plait.server.usage import UsageMeter
from plait.types.trajectory import Segment


class MeteredRollout:
    def __init__(self, rollout: RolloutService, quotas: Quotas, usage: UsageMeter, tenant_id: str, base_model: str) -> None:
        self._rollout, self._quotas, self._usage = rollout, quotas, usage
        self._tenant_id, self._base_model = tenant_id, base_model

    async def generate(self, request: GenerationRequest) -> Segment:
        """Waits for the tenant's tokens per minute where an SDK client would be told to come again."""
        num_prompt = len(request.context_tokens)
        amount, used = num_prompt + request.sampling.max_new_tokens, 0
        await self._take(amount)
        try:
            segment = await self._rollout.generate(request)
            used = num_prompt + len(segment.tokens)
            self._usage.generated(self._tenant_id, self._base_model, num_prompt, request.cached_tokens, len(segment.tokens))
            return segment
        finally:
            self._quotas.give_back(self._tenant_id, {Quota.TOKENS_PER_MINUTE: amount - used}, time.monotonic())

    async def _take(self, amount: int) -> None:
        while True:
            amounts = {Quota.TOKENS_PER_MINUTE: amount}
            try:
                return self._quotas.take(self._tenant_id, amounts, time.monotonic())
            except QuotaExceeded as error:
                if error.retry_after_s is None:  # More than a whole minute's: no waiting would help.
                    return self._quotas.charge(self._tenant_id, amounts, time.monotonic())
                await asyncio.sleep(error.retry_after_s)

    def release(self, handles: Sequence[str]) -> None:
        self._rollout.release(handles)
