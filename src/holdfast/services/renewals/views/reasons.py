"""The reasons of a score for pages: a bar, a figure and a sentence for each signal.

A page shows hundreds of these, and a template takes many times as long to work them out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.services.renewals.domain.scoring import DELINQUENT, EXPIRY, MARKET, NO_OFFER
from holdfast.services.renewals.models import RiskScore

# A word for each signal, and its shortest one.
_WORDS: Final = (
    (EXPIRY, "Lease end", "ends"),
    (DELINQUENT, "Payments", "payments"),
    (NO_OFFER, "Renewal offer", "no offer"),
    (MARKET, "Market rent", "market"),
)
# Bars are held against the heaviest weight there usually is, or against what is heavier.
_FULL: Final = 40
_HEAVY: Final = 30


class ScoreReason(NamedTuple):
    word: str
    short: str
    points: int
    share: float
    tone: str
    figure: str
    sentence: str


def reasons_of(score: RiskScore) -> list[ScoreReason]:
    """A score's signals, in the order in which pages show them.

    Example: `reasons_of(score)[0].sentence` is `The lease ends in 45 days.`
    """
    most = max(_FULL, *(one.points for one in score.signals.values()))
    made = []
    for name, word, short in _WORDS:
        one = score.signals[name]
        tone = "bad" if one.points >= _HEAVY else "warn" if one.points else "calm"
        figure = "no data" if one.value is None and not one.points else f"+{one.points}"
        made.append(ScoreReason(word, short, one.points, one.points / most, tone, figure, one.sentence))
    return made
