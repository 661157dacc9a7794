"""Events at a time of the clock, to the last bit: a timeout adds a difference to the clock, and what comes out may be rounded."""

import heapq

import simpy
from simpy.events import NORMAL


class Moment(simpy.Event):
    """It happens at `time_s`, or now if that is past."""

    def __init__(self, env: simpy.Environment, time_s: float) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        heapq.heappush(env._queue, (max(time_s, env.now), NORMAL, next(env._eid), self))
