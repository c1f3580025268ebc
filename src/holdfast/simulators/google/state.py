"""The state of the simulated Google."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.simulators.google.accounts import Accounts
from holdfast.simulators.google.calendars import Calendars
from holdfast.simulators.google.channels import PushChannels
from holdfast.simulators.google.consents import OAuthApps
from holdfast.simulators.google.refusals import Refusal
from holdfast.simulators.google.sheets import Spreadsheet


class Quota:
    """Remaining calls per caller and minute; None is unlimited."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spent: dict[tuple[str, int], int] = {}
        self.per_minute: int | None = None
        self.status = 403
        self.reason = "userRateLimitExceeded"

    def spend(self, email: str) -> None:
        """Count a call, or refuse it until the minute is over."""
        if self.per_minute is None:
            return
        minute, second = divmod(self._clock.monotonic(), 60.0)
        spent = self._spent.get((email, int(minute)), 0)
        if spent >= self.per_minute:
            message = "Rate Limit Exceeded"
            raise Refusal(self.status, self.reason, message, retry_after_s=max(1, round(60 - second)))
        self._spent = {key: count for key, count in self._spent.items() if key[1] == int(minute)}
        self._spent[(email, int(minute))] = spent + 1

    def refill(self) -> None:
        self._spent.clear()


class GoogleState:
    """Accounts, calendars, channels and spreadsheets."""

    def __init__(self, clock: Clock, *, http_on_loopback: bool) -> None:
        self.clock = clock
        self.channels = PushChannels(clock, http_on_loopback=http_on_loopback)
        self.url = ""
        self.clear()

    def clear(self) -> None:
        """Drop everything."""
        self.channels.clear()
        self.accounts = Accounts(self.clock)
        self.consents = OAuthApps(self.clock, self.accounts)
        self.calendars = Calendars(self.clock, self.channels.notify)
        self.spreadsheets: dict[str, Spreadsheet] = {}
        self.quota = Quota(self.clock)

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def add_person(self, email: str, *, time_zone: str = "UTC") -> None:
        self.accounts.people.add(email.lower())
        self.calendars.add(email.lower(), time_zone=time_zone)

    def add_service_account(self, name: str, *, scopes: list[str] | None = None) -> dict[str, str]:
        """The key file of a new service account; `scopes` are those delegated to it (None: all)."""
        return self.accounts.add_client(name, token_url=self.token_url, scopes=scopes)

    def add_app(self, name: str, *, redirect_uris: list[str]) -> dict[str, dict[str, object]]:
        """The JSON file of a new OAuth client."""
        return self.consents.add_app(name, redirect_uris=redirect_uris, url=self.url)
