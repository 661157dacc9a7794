"""What requests came to: from memory, or from the database if memory has let it go."""

from plait.operations.future_state import Expired, FutureState
from plait.operations.futures import UnknownFuture
from plait.server.futures import Futures
from plait.server.journal import stored_state
from plait.server.model_registry import ModelRegistry
from plait.server.names import parse_call_request_id, parse_sample_request_id
from plait.server.samplers import Samplers


class Results:
    def __init__(self, futures: Futures, samplers: Samplers, models: ModelRegistry, poll_s: float) -> None:
        self._futures, self._samplers, self._models, self._poll_s = futures, samplers, models, poll_s

    async def retrieve(self, request_id: str, tenant_id: str) -> FutureState:
        """Waits up to `poll_s` for what is not there yet. Raises UnknownFuture, or NotFound."""
        try:
            state = await self._futures.retrieve(request_id, tenant_id, self._poll_s)
        except UnknownFuture:
            return await self._retrieve_stored(request_id, tenant_id)
        return await self._retrieve_stored(request_id, tenant_id) if isinstance(state, Expired) else state

    async def _retrieve_stored(self, request_id: str, tenant_id: str) -> FutureState:
        if (sampler_id := parse_sample_request_id(request_id)) is not None:
            await self._samplers.get(sampler_id, tenant_id)
            return Expired("the server let it go, or was started again meanwhile")
        model_id, seq_id = parse_call_request_id(request_id) or ("", 0)
        await self._models.row(model_id, tenant_id)
        row = await self._models.journal.get(model_id, seq_id)
        if row is None:
            raise UnknownFuture(f"there is no request {request_id!r}.", "Send the request again.")
        return stored_state(row)
