"""How likely a resident is not to renew: four signals, their points, and why. Pure.

    days to expiry   40   the sooner the lease ends, the more
    delinquency      25   rent paid < rent due, or a late fee, in the last six months
    no offer         20   no renewal offer that counts
    market rent      15   market rent more than a tenth above the rent

Every weight is a share of 100, so a score is 0 to 100 and is the sum of its signals' points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from holdfast.plural import plural
from holdfast.services.renewals.domain.dates import months_before, whole_months
from holdfast.services.renewals.domain.money import Cents, from_cents

Tier = Literal["high", "medium", "low"]
LeaseType = Literal["fixed", "month_to_month"]
TIERS: Final[tuple[Tier, ...]] = ("high", "medium", "low")
FLAGGED: Final[tuple[Tier, ...]] = ("high", "medium")

WINDOW_MONTHS: Final = 6
TOLERANCE_CENTS: Final = 100
MONTH_TO_MONTH: Final = 70
_BY_DAYS: Final = ((0, 100), (30, 95), (60, 80), (90, 60), (120, 40), (180, 20))
_FAR_AWAY: Final = 5

EXPIRY: Final = "daysToExpiryDays"
DELINQUENT: Final = "paymentHistoryDelinquent"
NO_OFFER: Final = "noRenewalOfferYet"
MARKET: Final = "rentGrowthAboveMarket"
SIGNALS: Final = (EXPIRY, DELINQUENT, NO_OFFER, MARKET)

Points = Annotated[int, Meta(ge=0, le=100)]
Days = Annotated[int, Meta(ge=-4_000_000, le=4_000_000)]


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How much each signal counts, in whole points of 100."""

    expiry: Points = 40
    delinquency: Points = 25
    no_offer: Points = 20
    market_rent: Points = 15

    def __post_init__(self) -> None:
        total = self.expiry + self.delinquency + self.no_offer + self.market_rent
        if total != 100:
            raise ValueError(f"the weights add up to {total}, not 100")


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """From which score on a resident is high, and from which medium."""

    high: Points = 70
    medium: Points = 40

    def __post_init__(self) -> None:
        if self.medium > self.high:
            raise ValueError("medium begins at or below high")


class Rules(msgspec.Struct, frozen=True, rename="camel"):
    """What a property's scores are made by."""

    weights: Weights = Weights()
    thresholds: Thresholds = Thresholds()
    tolerance_cents: int = TOLERANCE_CENTS


class Signal(msgspec.Struct, frozen=True, gc=False):
    """One reason: what was found (null where there is no data), its points, and a sentence."""

    value: Days | bool | None
    points: Points
    sentence: str


class LeaseFacts(msgspec.Struct, frozen=True, gc=False):
    """What scoring needs of a lease."""

    id: str
    start: date
    end: date | None
    rent: Cents
    type: LeaseType = "fixed"


class LedgerTotals(msgspec.Struct, gc=False):
    """A resident's ledger inside the window, added up; amounts are in cents."""

    rows: int = 0
    charged: int = 0
    rent_charges: int = 0
    payments: int = 0
    paid: int = 0
    late_fees: int = 0

    def add(self, kind: str, code: str, *, rows: int, cents: int) -> None:
        """Count rows alike: payments that name no charge are rent; other charges are not rent's business."""
        self.rows += rows
        if kind == "payment":
            self.payments += rows
            if code in ("rent", ""):
                self.paid += cents
        elif code == "rent":
            self.charged += cents
            self.rent_charges += rows
        elif code == "late_fee":
            self.late_fees += cents


class Facts(msgspec.Struct, frozen=True, gc=False):
    """All that is known of one resident on the as-of date."""

    lease: LeaseFacts
    ledger: LedgerTotals
    has_offer: bool
    market_rent: int | None = None


class Assessment(msgspec.Struct, frozen=True, gc=False):
    """A score with its reasons; it is the sum of their points."""

    score: int
    tier: Tier
    days_to_expiry: int | None
    signals: dict[str, Signal]


def assess(facts: Facts, *, as_of: date, rules: Rules) -> Assessment:
    """Score one resident.

    Example: `assess(facts, as_of=date(2026, 3, 1), rules=Rules()).score` gives `67`
    """
    weights, lease = rules.weights, facts.lease
    days = None if lease.type == "month_to_month" or lease.end is None else (lease.end - as_of).days
    expiry = expiry_signal(days, weights.expiry)
    delinquent = delinquency_signal(facts, as_of=as_of, rules=rules)
    offer = _OFFERED if facts.has_offer else no_offer_signal(weights.no_offer)
    market = market_signal(lease.rent, facts.market_rent, weights.market_rent)
    score = expiry.points + delinquent.points + offer.points + market.points
    signals = {EXPIRY: expiry, DELINQUENT: delinquent, NO_OFFER: offer, MARKET: market}
    return Assessment(score, tier_of(score, rules.thresholds), days, signals)


def tier_of(score: int, thresholds: Thresholds) -> Tier:
    """The tier by today's thresholds; what is stored with a score is never judged again."""
    if score >= thresholds.high:
        return "high"
    return "medium" if score >= thresholds.medium else "low"


# -- the signals ----------------------------------------------------------------------------------


def expiry_share(days: int | None) -> int:
    """How much of the weight counts, in hundredths; None is month-to-month."""
    if days is None:
        return MONTH_TO_MONTH
    return next((share for limit, share in _BY_DAYS if days <= limit), _FAR_AWAY)


@lru_cache(maxsize=4_096)
def expiry_signal(days: int | None, weight: int) -> Signal:
    # Halves are rounded up, so that the points are whole and their sum is the score.
    points = (expiry_share(days) * weight + 50) // 100
    return Signal(days, points, _when(days))


def _when(days: int | None) -> str:
    if days is None:
        return "The lease runs from month to month."
    if days < 0:
        return f"The lease ended {_days(-days)} ago."
    return "The lease ends today." if days == 0 else f"The lease ends in {_days(days)}."


def _days(count: int) -> str:
    return plural(count, "day")


def delinquency_signal(facts: Facts, *, as_of: date, rules: Rules) -> Signal:
    ledger = facts.ledger
    if not ledger.rows:
        return _NO_LEDGER
    due = ledger.charged
    if ledger.payments and not ledger.rent_charges:
        due = rent_due(facts.lease, as_of)
    short = ledger.paid < due - rules.tolerance_cents
    return _delinquency(ledger.paid, due, short, ledger.late_fees, rules.weights.delinquency)


# All by position: names would be hashed with the values.
@lru_cache(maxsize=4_096)
def _delinquency(paid: int, due: int, short: bool, fees: int, weight: int, /) -> Signal:
    said = f"Paid {from_cents(paid)} of {from_cents(due)} rent due in the last six months"
    # A fee that was taken back is a charge below nothing: what is left of them counts.
    late = short or fees > 0
    if fees > 0:
        said += f", with {from_cents(fees)} of late fees"
    return Signal(late, weight if late else 0, said + ".")


def rent_due(lease: LeaseFacts, as_of: date) -> int:
    """Rent for the months of the lease inside the window: what is due where nobody wrote charges down."""
    start, end = max(lease.start, months_before(as_of, WINDOW_MONTHS)), as_of
    if lease.type == "fixed" and lease.end is not None and lease.end < as_of:
        # The last day of a lease belongs to it: from the first of March to the last of July is five months.
        end = lease.end + timedelta(days=1)
    return lease.rent * whole_months(start, end)


@lru_cache(maxsize=256)
def no_offer_signal(weight: int) -> Signal:
    return Signal(True, weight, "No renewal offer was made in this lease.")


def market_signal(rent: int, market: int | None, weight: int) -> Signal:
    if market is None:
        return Signal(None, 0, "No data: the unit has no pricing.")
    above = market * 10 > rent * 11
    said = f"Market rent is {from_cents(market)} against a rent of {from_cents(rent)}"
    return Signal(above, weight if above else 0, said + (", more than 10 % above." if above else "."))


_OFFERED: Final = Signal(False, 0, "A renewal offer is pending or accepted.")
_NO_LEDGER: Final = Signal(None, 0, "No data: the ledger has no rows in the last six months.")


# -- choosing -------------------------------------------------------------------------------------


def current_lease(leases: Sequence[LeaseFacts], as_of: date) -> LeaseFacts | None:
    """The lease a resident lives under: the newest that has begun, else the next one to begin."""
    if len(leases) == 1:
        return leases[0]
    begun = [lease for lease in leases if lease.start <= as_of]
    if begun:
        return max(begun, key=lambda lease: (lease.start, lease.end or date.max, lease.id))
    return min(leases, key=lambda lease: (lease.start, lease.id), default=None)


class Offer(msgspec.Struct, frozen=True, gc=False):
    """What scoring needs of a renewal offer; `made_on` is the property's local date."""

    lease_id: str
    status: str
    made_on: date | None = None
    expires_on: date | None = None


def counts(offer: Offer, lease: LeaseFacts, as_of: date) -> bool:
    """Whether an offer speaks for this lease: open or accepted, and made while the lease ran."""
    if offer.lease_id != lease.id or offer.status not in ("pending", "accepted"):
        return False
    if offer.status == "pending" and offer.expires_on is not None and offer.expires_on < as_of:
        return False
    if offer.made_on is None:
        return True
    runs_out = lease.end is not None and lease.type == "fixed" and offer.made_on > lease.end
    return lease.start <= offer.made_on <= as_of and not runs_out


def rescore(days: int | None, signals: Mapping[str, Signal], weights: Weights) -> int:
    """The score of the same signals by other weights; `days` is None for month-to-month."""
    points = (expiry_share(days) * weights.expiry + 50) // 100
    shares = ((DELINQUENT, weights.delinquency), (NO_OFFER, weights.no_offer), (MARKET, weights.market_rent))
    return points + sum(weight for name, weight in shares if signals[name].value is True)
