"""Of several things at once one may fail; the others come to their ends first."""

import asyncio

import pytest

from plait.cluster.all_of import all_of


def test_results_are_in_order_and_the_first_error_waits_for_all() -> None:
    ended: list[int] = []

    async def work(number: int, turns: int, error: Exception | None = None) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        if error is not None:
            raise error
        ended.append(number)
        return number

    async def main() -> None:
        assert await all_of([work(0, 3), work(1, 1)]) == [0, 1]
        with pytest.raises(KeyError):
            await all_of([work(2, 2, KeyError()), work(3, 0, ValueError()), work(4, 9)])

    asyncio.run(main())
    assert ended == [1, 0, 4]
