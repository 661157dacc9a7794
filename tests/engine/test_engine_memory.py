"""P60: thousands of steps leave memory, tables and descriptors as they were."""

import gc
import random

import psutil

from plait.engine.adapters import AdapterStore
from plait.types.sampling import SamplingParams, StopReason
from tests.engine.tiny import Driver, Request, load_from, make_engine, model

NUM_STEPS = 2000
WARM_UP_STEPS = 700
MAX_NEW_OBJECTS = 1000
"""Requests in flight differ a little; a leak of one object a step would be more."""
MAX_GROWTH_BYTES = 12 * 2**20
"""oneDNN keeps the last thousand kernels it made, and goes on making some for shapes not met before."""


class Traffic:
    """Five requests at any time, all different, some cancelled, some kept, over five adapters."""

    def __init__(self) -> None:
        tiny = model(num_layers=1, hidden_size=64, intermediate_size=64, head_dim=16)
        self.store = AdapterStore(load_from(tiny), 2)
        self.driver = Driver(make_engine(tiny, self.store, max_rows=4, slot_tokens=512, pool_tokens=512), budget=4)
        self.rng, self.number = random.Random(0), 0

    def step(self) -> None:
        engine, outcomes = self.driver.engine, self.driver.outcomes
        while len(engine.waiting) + len(engine.rows) < 5:
            self.driver.submit(self._next())
        if self.rng.random() < 0.1:
            engine.cancel(str(self.rng.randint(self.number - 5, self.number)))
        self.driver.step()
        for done in [name for name, outcome in outcomes.items() if outcome.results and outcome.stop != StopReason.BUDGET]:
            del self.driver.requests[done], outcomes[done]

    def _next(self) -> Request:
        self.number += 1
        prompt = tuple(self.rng.randrange(300) for _ in range(self.rng.choice((1, 17, 40))))
        params = SamplingParams(self.rng.randint(1, 12), seed=self.number)
        return Request(str(self.number), prompt, params, f"t{self.number % 5}", keep_cache=self.number % 3 == 0)


def test_two_thousand_steps_do_not_grow() -> None:
    traffic, process = Traffic(), psutil.Process()
    for _ in range(WARM_UP_STEPS):
        traffic.step()
    gc.collect()
    before = process.memory_info().rss, process.num_fds(), len(gc.get_objects())
    for _ in range(NUM_STEPS - WARM_UP_STEPS):
        traffic.step()
    gc.collect()
    after = process.memory_info().rss, process.num_fds(), len(gc.get_objects())
    assert traffic.number > 800
    assert after[2] - before[2] < MAX_NEW_OBJECTS
    assert after[1] - before[1] < 20, "other tests of this process may have something open; a leak would be of 1300"
    assert after[0] - before[0] < MAX_GROWTH_BYTES
    traffic.driver.run()
    assert len(traffic.store.resident) <= 2
    assert traffic.driver.engine.pool.num_stored <= traffic.driver.engine.pool.num_blocks
