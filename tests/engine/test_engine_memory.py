"""P60: thousands of steps leave memory, tables and descriptors as they were."""

import gc
import random

import psutil

from plait.engine.adapters import AdapterStore
from plait.types.sampling import SamplingParams
from tests.engine.tiny import Driver, Request, load_from, make_engine, model

NUM_STEPS = 2000
WARM_UP_STEPS = 400
MAX_GROWTH_BYTES = 6 * 2**20


def test_two_thousand_steps_do_not_grow() -> None:
    tiny, rng = model(num_layers=1), random.Random(0)
    store = AdapterStore(load_from(tiny), 2)
    driver = Driver(make_engine(tiny, store, max_rows=4, slot_tokens=512, pool_tokens=512), budget=4)
    engine, process, number = driver.engine, psutil.Process(), 0
    rss_bytes, descriptors = 0, 0
    for step in range(NUM_STEPS):
        if step == WARM_UP_STEPS:
            gc.collect()
            rss_bytes, descriptors = process.memory_info().rss, process.num_fds()
        while len(engine.waiting) + len(engine.rows) < 5:
            number += 1
            prompt = tuple(rng.randrange(300) for _ in range(rng.randint(1, 40)))
            driver.submit(Request(str(number), prompt, SamplingParams(rng.randint(1, 12), seed=number), f"t{number % 5}", keep_cache=number % 3 == 0))
        if step % 7 == 0:
            engine.cancel(str(rng.randint(number - 5, number)))
        driver.step()
        for done in [name for name, outcome in driver.outcomes.items() if outcome.results and outcome.stop != "budget"]:
            del driver.requests[done], driver.outcomes[done]
    gc.collect()
    assert number > 800
    assert process.memory_info().rss - rss_bytes < MAX_GROWTH_BYTES
    assert process.num_fds() == descriptors
    driver.run()
    assert len(store.resident) <= 2
    assert engine.pool.num_stored <= engine.pool.num_blocks
