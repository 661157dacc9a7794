"""Moves the deployments of a job from one worker group to another, between calls.

1. They come up at the new group, while the old one goes on.
2. Nothing new is sent. What was sent is finished at the old group; its results are durable, or have come back.
3. The old group lets go of them: of the records too, which have one writer.
4. From now on they are at the new group. Adapters are opened there from their records, generations go on from the tokens that had
   come back: the same bits as without the move. What was held back meanwhile is sent in its order.

If a process is lost before step 3, or has not come back from an earlier loss, nothing has moved, and the loss takes its usual way;
after it, as a loss at the new group.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from plait.cluster.all_of import all_of
from plait.cluster.groups.worker_group import WorkerGroup
from plait.types.errors import WorkerFailure

if TYPE_CHECKING:
    from plait.cluster.groups.grouped_workers import GroupedWorkers

PATIENCE_S = 10.0
"""How long a group's process may take to let go of a deployment at the end; it is at work on slices of a call meanwhile."""


class MoveListener(Protocol):
    def move_begins(self) -> None:
        """Nothing is to be sent to trainers until `move_ends`."""
        ...

    def move_ends(self, has_moved: bool, is_up: bool) -> None:
        """`is_up` False: the workers were lost, which has been told, and will be back."""
        ...


async def move(workers: "GroupedWorkers", goal: WorkerGroup) -> bool:
    """False: all is as it was, or it is there already. Raises PlaitError if a deployment does not come up at `goal`."""
    source, listener = workers.group, workers.on_move
    if source is goal or listener is None:
        return False
    try:
        await _bring_up(workers, goal)
        workers.is_moving = True
        listener.move_begins()
        was_up = _all_up(workers, source)  # Who comes up only now may have begun something of which the drain knows nothing.
        if was_up:
            await asyncio.gather(*(source.drain(deployment) for deployment in workers.deployments))
        if not was_up or not _all_up(workers, source) or not _all_up(workers, goal):
            _resume(workers, has_moved=False, is_up=_all_up(workers, source))
            await _let_go(workers, goal)
            return False
        await _let_go(workers, source)
        _switch(workers, goal)
        return True
    except BaseException:
        if workers.group is source:
            if workers.is_moving:
                _resume(workers, has_moved=False, is_up=_all_up(workers, source))
            await _let_go(workers, goal, PATIENCE_S)
        raise


async def _bring_up(workers: "GroupedWorkers", goal: WorkerGroup) -> None:
    workers.failure = None
    for configuration in workers.configurations:
        deployment = f"{workers.owner}/{configuration.name}"
        await goal.attach(deployment, configuration, workers.listener(configuration, goal))


def _switch(workers: "GroupedWorkers", goal: WorkerGroup) -> None:
    """At once, so that nothing comes between."""
    workers.groups.moved(workers.owner, goal.settings.name)
    if _all_up(workers, goal):
        _resume(workers, has_moved=True, is_up=True)
        return
    failure = WorkerFailure(f"worker group {goal.settings.name} was lost while {workers.owner} moved there")
    listeners = {f"{workers.owner}/{one.name}": workers.listener(one, goal) for one in workers.configurations}
    for heard in listeners.values():
        _tell(workers, heard.on_lost, failure)
    _resume(workers, has_moved=True, is_up=False)
    for deployment, heard in listeners.items():
        if workers.failure is not None:
            heard.on_failed(workers.failure)
        elif goal.is_up(deployment):
            _tell(workers, heard.on_ready)


def _resume(workers: "GroupedWorkers", has_moved: bool, is_up: bool) -> None:
    workers.is_moving = False
    assert workers.on_move is not None, "there is no move without one"
    _tell(workers, workers.on_move.move_ends, has_moved, is_up)


def _tell(workers: "GroupedWorkers", handler: Callable[..., None], *arguments: object) -> None:
    """An error of the owner's handler is what it failed with: raised further it would be the move's, and the owner would wait."""
    try:
        handler(*arguments)
    except Exception as error:
        workers.on_failed(error)


async def _let_go(workers: "GroupedWorkers", group: WorkerGroup, patience_s: float | None = None) -> None:
    await all_of([group.detach(deployment, patience_s) for deployment in workers.deployments])


def _all_up(workers: "GroupedWorkers", group: WorkerGroup) -> bool:
    return all(group.is_up(deployment) for deployment in workers.deployments)
