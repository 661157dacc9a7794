"""Loading a checkpoint that is not there any more is the caller's error; one that is damaged is the service's."""

from pathlib import Path
from typing import Any

import pytest

from plait.cluster.checkpoints import load_state
from plait.types.errors import AdapterError, StateError


def test_a_checkpoint_that_was_deleted_and_one_that_is_damaged(tmp_path: Path) -> None:
    weights: Any = None
    with pytest.raises(AdapterError, match="deleted"):
        load_state(tmp_path / "gone", weights, with_optimizer=False)
    with pytest.raises(StateError, match="damaged"):
        load_state(tmp_path, weights, with_optimizer=False)
