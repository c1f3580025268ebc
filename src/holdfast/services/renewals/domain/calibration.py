"""Do high scores really leave? Scores against what became of the residents. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

BAND: Final = 10


class Judged(NamedTuple):
    """A score from before the decision, and whether the resident left."""

    score: int
    left: bool


class Band(msgspec.Struct, frozen=True):
    """Scores from `low` to `high`, both included."""

    low: int
    high: int
    count: int
    left: int
    rate: float | None


class Calibration(msgspec.Struct, frozen=True):
    """Brier is the mean squared error of score / 100 (0 is best); AUC is how often one who left scored
    above one who stayed (1 is best, 0.5 is chance). Both are null where there is nothing to judge by."""

    count: int
    left: int
    brier: float | None
    auc: float | None
    bands: list[Band]


def calibrate(judged: Iterable[Judged]) -> Calibration:
    """What the scores were worth.

    Example: `calibrate([Judged(90, True), Judged(10, False)]).auc` gives `1.0`
    """
    # Scores are 0 to 100, so two counts for each say everything, however many residents there were.
    left, stayed = [0] * 101, [0] * 101
    for one in judged:
        (left if one.left else stayed)[one.score] += 1
    gone, there = sum(left), sum(stayed)
    return Calibration(gone + there, gone, _brier(left, stayed), _auc(left, stayed), _bands(left, stayed))


def _brier(left: list[int], stayed: list[int]) -> float | None:
    total = sum(left) + sum(stayed)
    if not total:
        return None
    wrong = sum((100 - s) ** 2 * left[s] + s**2 * stayed[s] for s in range(101))
    return wrong / 10_000 / total


def _auc(left: list[int], stayed: list[int]) -> float | None:
    gone, there = sum(left), sum(stayed)
    if not gone or not there:
        return None
    below = won = 0
    for score in range(101):
        # Twice, so that a tie counts one half and all stays whole.
        won += left[score] * (2 * below + stayed[score])
        below += stayed[score]
    return won / (2 * gone * there)


def _bands(left: list[int], stayed: list[int]) -> list[Band]:
    made = []
    for low in range(0, 100, BAND):
        high = 100 if low + BAND == 100 else low + BAND - 1
        gone, there = sum(left[low : high + 1]), sum(stayed[low : high + 1])
        count = gone + there
        made.append(Band(low, high, count, gone, gone / count if count else None))
    return made
