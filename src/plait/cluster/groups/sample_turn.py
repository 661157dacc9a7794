"""What a deployment has to sample: chunks and prompts to score that wait for its turn, and those of the turn that runs. Pure.

Each is answered once: by the worker if it was handed over, here if it is cancelled before.
"""

from collections.abc import Sequence

from plait.cluster.messages import ChunksDone, FromWorker, SubmitChunks, ToWorker
from plait.cluster.model_messages import PromptScored, ScorePrompt
from plait.types.chunks import Chunk, ChunkResult
from plait.types.sampling import StopReason


class SampleWork:
    def __init__(self) -> None:
        self._held: dict[str, Chunk | ScorePrompt] = {}
        self._running: dict[str, float] = {}
        """When each was handed over."""
        self._spent_s = 0.0
        self._num_answered = 0

    @property
    def has_held(self) -> bool:
        return bool(self._held)

    @property
    def has_running(self) -> bool:
        return bool(self._running)

    def hold(self, message: SubmitChunks | ScorePrompt) -> None:
        items = message.chunks if isinstance(message, SubmitChunks) else (message,)
        self._held |= {item.request_id: item for item in items}

    def hand_over(self, now_s: float) -> list[ToWorker]:
        """All that is held; it runs from now on."""
        items, self._held = list(self._held.values()), {}
        self._running |= {item.request_id: now_s for item in items}
        chunks = tuple(item for item in items if isinstance(item, Chunk))
        prompts = [item for item in items if isinstance(item, ScorePrompt)]
        return [*([SubmitChunks(chunks)] if chunks else []), *prompts]

    def answered(self, message: FromWorker, now_s: float) -> None:
        """The worker has said something: what is over with it."""
        match message:
            case ChunksDone(results):
                over = [result.request_id for result in results]
            case PromptScored():
                over = [message.request_id]
            case _:
                return
        for request_id in over:
            start_s = self._running.pop(request_id, None)
            if start_s is not None:
                self._spent_s += now_s - start_s
                self._num_answered += 1

    def cancel(self, request_ids: Sequence[str]) -> tuple[list[FromWorker], tuple[str, ...]]:
        """Answers to those that are held, and those that run, which the worker is to end."""
        held = [self._held.pop(request_id) for request_id in request_ids if request_id in self._held]
        running = tuple(request_id for request_id in request_ids if request_id in self._running)
        return [_cancelled(item) for item in held], running

    def mean_s(self) -> float | None:
        """Of what was answered since the last time of asking, from handing over to answer: as long as a turn takes to yield."""
        mean = self._spent_s / self._num_answered if self._num_answered else None
        self._spent_s, self._num_answered = 0.0, 0
        return mean


def _cancelled(item: Chunk | ScorePrompt) -> FromWorker:
    if isinstance(item, Chunk):
        return ChunksDone((ChunkResult(item.request_id, item.policy, (), (), StopReason.CANCELLED),))
    return PromptScored(item.request_id, error="it was cancelled", is_user_error=True)
