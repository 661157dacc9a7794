"""Groups of real ranks for tests: one server of forks for the whole session."""

from plait.sharding.rank_group import PRELOADED, RankGroup

TIMEOUT_S = 300.0


def rank_group(num_ranks: int) -> RankGroup:
    return RankGroup(num_ranks, timeout_s=TIMEOUT_S, preloaded=(*PRELOADED, "tests.sharding.work"))
