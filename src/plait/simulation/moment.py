"""Events at a time of the clock, to the last bit: a timeout adds a difference to the clock, and what comes out may be rounded."""

import heapq
from typing import Any

import simpy
from simpy.events import NORMAL


class Moment(simpy.Event):
    """It happens at `time_s`, which is not past. As cheap as a timeout: `Event.__init__` would ask more."""

    def __init__(self, env: simpy.Environment, time_s: float) -> None:
        self.env = env
        self.callbacks: Any = []
        self._ok, self._value = True, None
        heapq.heappush(env._queue, (time_s, NORMAL, next(env._eid), self))
