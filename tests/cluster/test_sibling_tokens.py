"""What siblings draw is passed on between engines, whenever their group begins."""

from plait.cluster.messages import ShareTokens
from plait.cluster.sibling_tokens import SiblingTokens
from plait.drafting.draft import DraftIncrement


def test_a_group_that_begins_again_is_shared_again() -> None:
    """A service samples the same prompt under the same policy again, after all that asked for it before have their answers."""
    sent: list[tuple[str, ShareTokens]] = []
    siblings = SiblingTokens(["e0", "e1"], lambda engine, message: sent.append((engine, message)))
    for request in ("early", "late"):
        piece = DraftIncrement("g", request, 0, (1, 2))
        siblings.began("g")
        siblings.drawn("e0", [piece])
        siblings.drawn("e1", [])
        siblings.began("g")
        siblings.drawn("e1", [DraftIncrement("g", "other", 0, (3,))])
        assert ("e1", ShareTokens((piece,))) in sent
        siblings.ended("g")
        siblings.ended("g")
        assert sent[-2:] == [(engine, ShareTokens((), ("g",))) for engine in ("e0", "e1")]
        siblings.drawn("e0", [DraftIncrement("g", "early", 2, (4,))])
        assert len(sent) == 4, "it has ended"
        sent.clear()
