"""What a client can put on the server. Each load answers with what it saw; latencies are in seconds, in no order.

Prompts differ from each other, so that no cache answers. A load whose `count` is None goes on until it is stopped.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.service_sdk import sample_at_once
from benchmarks.service_server import VOCAB_SIZE
from benchmarks.service_wire import Model, WireClient, datums, random_prompt

PROMPT_TOKENS = 16
RANK = 8


@dataclass
class Tenant:
    url: str
    key: str
    base_model: str
    client: WireClient
    models: list[Model] = field(default_factory=list)
    prompts: Iterator[int] = field(default_factory=itertools.count)
    sampler_id: str = ""

    async def sampler(self) -> str:
        if not self.sampler_id:
            self.sampler_id = await self.client.sampler(self.base_model)
        return self.sampler_id

    async def model(self, index: int = 0) -> Model:
        while len(self.models) <= index:
            self.models.append(await self.client.model(self.base_model, RANK))
        return self.models[index]

    def prompt(self) -> list[int]:
        return random_prompt(next(self.prompts), PROMPT_TOKENS, VOCAB_SIZE)


Load = Callable[..., Awaitable[dict[str, Any]]]


async def _in_turn(count: int | None, stop: asyncio.Event, lanes: int, work: Callable[[int], Awaitable[None]]) -> dict[str, Any]:
    """`work(lane)` over and over in each lane, `count` times in all."""
    numbers = iter(range(count)) if count is not None else itertools.count()
    latencies_s: list[float] = []

    async def run(lane: int) -> None:
        for _ in numbers:
            if stop.is_set():
                return
            start_s = time.perf_counter()
            await work(lane)
            latencies_s.append(time.perf_counter() - start_s)

    start_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for lane in range(lanes):
            group.create_task(run(lane))
    wall_s = time.perf_counter() - start_s
    return {"count": len(latencies_s), "wall_s": wall_s, "latencies_s": latencies_s}


async def samples(
    tenant: Tenant,
    stop: asyncio.Event,
    max_tokens: int,
    lanes: int = 1,
    count: int | None = None,
    for_s: float | None = None,
) -> dict[str, Any]:
    """`count` samples, or for so many seconds, or until it is stopped."""
    sampler_id = await tenant.sampler()
    if for_s is not None:
        asyncio.get_running_loop().call_later(for_s, stop.set)

    async def sample(lane: int) -> None:
        await tenant.client.sample(sampler_id, tenant.prompt(), max_tokens)

    result = await _in_turn(count, stop, lanes, sample)
    return result | {"num_tokens": result["count"] * max_tokens}


async def results(tenant: Tenant, stop: asyncio.Event, count: int, lanes: int, max_tokens: int) -> dict[str, Any]:
    """Samples first, all at once; the time is that of fetching them, each once."""
    sampler_id = await tenant.sampler()
    prompts = [tenant.prompt() for _ in range(count)]
    request_ids = await asyncio.gather(*(tenant.client.submit_sample(sampler_id, prompt, max_tokens) for prompt in prompts))
    await tenant.client.retrieve(request_ids[-1])
    await tenant.client.sample(sampler_id, tenant.prompt(), max_tokens)  # It waited for all that came before it.
    waiting = iter(request_ids)

    async def fetch(lane: int) -> None:
        await tenant.client.retrieve(next(waiting))

    return await _in_turn(count, stop, lanes, fetch)


async def optimizer_steps(tenant: Tenant, stop: asyncio.Event, count: int, lanes: int = 1) -> dict[str, Any]:
    """Of `lanes` models. Each step has a gradient, and the time to make it does not count."""
    models = [await tenant.model(lane) for lane in range(lanes)]
    data = datums(1, PROMPT_TOKENS, VOCAB_SIZE)
    steps_s: list[float] = []

    async def step(lane: int) -> None:
        await tenant.client.forward_backward(models[lane], data)
        start_s = time.perf_counter()
        await tenant.client.optim_step(models[lane])
        steps_s.append(time.perf_counter() - start_s)

    result = await _in_turn(count, stop, lanes, step)
    return result | {"latencies_s": steps_s, "pair_latencies_s": result["latencies_s"]}


async def forward_backwards(
    tenant: Tenant, stop: asyncio.Event, num_datums: int, num_tokens: int, count: int | None = None, pause_s: float = 0.0
) -> dict[str, Any]:
    """One after another."""
    model = await tenant.model()
    data = datums(num_datums, num_tokens, VOCAB_SIZE)
    latencies_s: list[float] = []

    async def call(lane: int) -> None:
        start_s = time.perf_counter()
        await tenant.client.forward_backward(model, data)
        latencies_s.append(time.perf_counter() - start_s)
        await asyncio.sleep(pause_s)

    return await _in_turn(count, stop, 1, call) | {"latencies_s": latencies_s}


async def publishes(tenant: Tenant, stop: asyncio.Event, count: int, every_s: float) -> dict[str, Any]:
    """Steps whose weights are published to a sampler, one each `every_s`, or as fast as it goes."""
    model = await tenant.model()
    data = datums(1, PROMPT_TOKENS, VOCAB_SIZE)

    async def publish(lane: int) -> None:
        due_s = time.perf_counter() + every_s
        await tenant.client.forward_backward(model, data)
        await tenant.client.optim_step(model)
        await tenant.client.publish(model)
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))

    return await _in_turn(count, stop, 1, publish)


async def sdk_samples(tenant: Tenant, stop: asyncio.Event, count: int, max_tokens: int) -> dict[str, Any]:
    prompts = [tenant.prompt() for _ in range(count)]
    return await asyncio.to_thread(sample_at_once, tenant.url, tenant.key, tenant.base_model, prompts, max_tokens)


LOADS: dict[str, Load] = {
    load.__name__: load for load in (samples, results, optimizer_steps, forward_backwards, publishes, sdk_samples)
}
