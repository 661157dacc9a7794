"""`tinker://RUN/KIND/NAME`: how checkpoints are called."""

from typing import Literal, NamedTuple

from plait.server.errors import ServiceError

CheckpointKind = Literal["training", "sampler", "external"]
SEGMENTS: dict[CheckpointKind, str] = {"training": "weights", "sampler": "sampler_weights", "external": "external_weights"}
KINDS: dict[str, CheckpointKind] = {segment: kind for kind, segment in SEGMENTS.items()}
SCHEME = "tinker://"


class TinkerPath(NamedTuple):
    model_id: str
    kind: CheckpointKind
    name: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.model_id}/{SEGMENTS[self.kind]}/{self.name}"


def parse_tinker_path(text: str) -> TinkerPath:
    """Raises ServiceError (422) if it is not of that form."""
    parts = text.removeprefix(SCHEME).split("/")
    if not text.startswith(SCHEME) or len(parts) != 3 or parts[1] not in KINDS or not parts[0] or not parts[2]:
        raise ServiceError(
            f"path {text!r} is no checkpoint's.", "It is tinker://RUN/weights/NAME, or sampler_weights in place of weights."
        )
    return TinkerPath(parts[0], KINDS[parts[1]], parts[2])
