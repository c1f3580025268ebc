"""Clients of Google: people's calendars, the sheet of mappings, push channels."""

from __future__ import annotations

from pathlib import Path

from holdfast.clock import Clock, from_us, to_us
from holdfast.errors import ConfigError, ForbiddenError, InvalidError, NotFoundError, ReauthRequiredError
from holdfast.kit.channels import Opened
from holdfast.net import HttpSession
from holdfast.providers.google_calendar import CALENDAR_SCOPE, GoogleCalendar, PushChannel
from holdfast.providers.google_oauth import ServiceAccount, ServiceAccountKey
from holdfast.providers.google_sheets import SHEETS_READ_SCOPE, GoogleSheets
from holdfast.services.calendar_sync.settings import CalendarSyncSettings


class Google:
    """A service account that acts for the people of a domain; clients are made on first use."""

    def __init__(self, settings: CalendarSyncSettings, *, session: HttpSession, clock: Clock) -> None:
        self._settings, self._session, self._clock = settings, session, clock
        self._account: ServiceAccount | None = None
        self._calendars: dict[str, GoogleCalendar] = {}
        self._sheets: GoogleSheets | None = None

    def calendar(self, email: str) -> GoogleCalendar:
        """Return the Calendar client that acts as this person."""
        found = self._calendars.get(email)
        if found is None:
            tokens = self._service_account().tokens([CALENDAR_SCOPE], subject=email)
            url = self._settings.calendar_url
            found = GoogleCalendar(self._session, tokens, clock=self._clock, base_url=url)
            self._calendars[email] = found
        return found

    async def check_access(self, email: str) -> None:
        """Ask for a token for this person (none: the account itself); raise when Google refuses."""
        await self._service_account().grant([CALENDAR_SCOPE], subject=email)

    def sheets(self) -> GoogleSheets:
        """Return the Sheets client, as the service account or as the person set to read the mappings."""
        if self._sheets is None:
            tokens = self._service_account().tokens([SHEETS_READ_SCOPE], subject=self._settings.sheet_reader)
            url = self._settings.sheets_url
            self._sheets = GoogleSheets(self._session, tokens, clock=self._clock, base_url=url)
        return self._sheets

    def _service_account(self) -> ServiceAccount:
        if self._account is None:
            path = self._settings.service_account
            if not path:
                raise ConfigError("no credentials: set [service.calendar_sync] service_account to a key file")
            self._account = ServiceAccount(
                self._session, ServiceAccountKey.read(Path(path)), clock=self._clock
            )
        return self._account


class CalendarChannels:
    """Opens and stops push channels on people's calendars, for the kit's channels."""

    def __init__(self, google: Google, *, address: str, clock: Clock) -> None:
        self._google, self._address, self._clock = google, address, clock

    async def open(self, watched_id: str, *, channel_id: str, token: str, ttl_s: float) -> Opened:
        ends_ms = to_us(self._clock.now()) // 1000 + round(ttl_s * 1000)
        asked = PushChannel(id=channel_id, address=self._address, token=token, expiration=str(ends_ms))
        try:
            granted = await self._google.calendar(watched_id).watch_events(watched_id, asked)
        except (ForbiddenError, NotFoundError) as fault:
            # No repeat helps: an administrator must give access, or take the mapping away.
            raise ReauthRequiredError(fault.message) from None
        return Opened(
            resource_id=granted.resource_id, expires_at=from_us((granted.expiration_ms or ends_ms) * 1000)
        )

    async def stop(self, watched_id: str, *, channel_id: str, resource_id: str) -> None:
        if not resource_id:
            # Asked without it, Google says that there is no such channel, while there may be one.
            raise InvalidError("the channel's resource is not known yet; its first notification tells it")
        await self._google.calendar(watched_id).stop_channel(channel_id, resource_id)
