"""Every frame of a stream is exactly one learner's, and both questions agree on whose."""

from __future__ import annotations

import pytest

from server.learn.share import ALL, RUN, Share


@pytest.mark.parametrize("learners", [1, 2, 3])
@pytest.mark.parametrize("gateway", [0, 1, 5])
def test_runs_are_dealt_out_in_turn_and_counted_as_they_are_dealt(
    learners: int, gateway: int
) -> None:
    shares = [Share(rank, learners, gateway) for rank in range(learners)]
    end = 7 * RUN + 5
    owners: list[list[int]] = [[] for _ in range(end)]
    for share in shares:
        first, stop = share.run(0)
        while first < end:
            assert share.run(first + 1) == (first + 1, stop)  # from its middle on: the rest of it
            for frame in range(first, min(stop, end)):
                owners[frame].append(share.rank)
            first, stop = share.run(stop)
    assert all(len(found) == 1 for found in owners)
    assert owners[0] == [gateway % learners]
    for first, stop in [(0, end), (RUN - 1, RUN), (RUN, RUN + 1), (5, 3 * RUN + 9), (9, 9)]:
        for share in shares:
            mine = sum(found == [share.rank] for found in owners[first:stop])
            assert share.count(first, stop) == mine
    assert sum(share.count(0, end) for share in shares) == end


def test_a_lone_learner_gets_all_in_one_run() -> None:
    first, stop = ALL.run(123)
    assert first == 123 and stop > 2**62
    assert ALL.count(3, 1000) == 997
    assert ALL.count(9, 3) == 0
