"""Control commands of the simulated Google, by name under `/_control`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from holdfast.simulators.google.channels import PushFault
from holdfast.simulators.google.consents import ConsentChoice
from holdfast.simulators.google.events import view
from holdfast.simulators.google.sheets import Cell, Spreadsheet
from holdfast.simulators.google.state import GoogleState
from holdfast.simulators.server import Command

FaultCount = Annotated[int, Meta(ge=1, le=100_000)]


class AddPerson(Command[GoogleState], frozen=True):
    """Add a person with a calendar: {email, timeZone}."""

    email: str
    time_zone: str = "UTC"

    def run(self, state: GoogleState) -> object:
        state.add_person(self.email, time_zone=self.time_zone)
        return {"email": self.email}


class AddServiceAccount(Command[GoogleState], frozen=True):
    """Create a service account and return its key file: {name, scopes (delegated; null for all)}."""

    name: str
    scopes: list[str] | None = None

    def run(self, state: GoogleState) -> object:
        return state.add_service_account(self.name, scopes=self.scopes)


class CreateEvent(Command[GoogleState], frozen=True):
    """Create an event as the calendar's owner: {calendar, event}."""

    calendar: str
    event: dict[str, Any]

    def run(self, state: GoogleState) -> object:
        record = state.calendars.insert(state.calendars.owned_by(self.calendar), self.event)
        return view(record, self.calendar)


class UpdateEvent(Command[GoogleState], frozen=True):
    """Change an event as the calendar's owner: {calendar, eventId, patch}."""

    calendar: str
    event_id: str
    patch: dict[str, Any]

    def run(self, state: GoogleState) -> object:
        calendar = state.calendars.owned_by(self.calendar)
        return view(state.calendars.patch(calendar, self.event_id, patch=self.patch), self.calendar)


class DeleteEvent(Command[GoogleState], frozen=True):
    """Delete an event as the calendar's owner: {calendar, eventId}."""

    calendar: str
    event_id: str

    def run(self, state: GoogleState) -> object:
        state.calendars.delete(state.calendars.owned_by(self.calendar), self.event_id)
        return {"deleted": self.event_id}


class Respond(Command[GoogleState], frozen=True):
    """Respond to an invitation as a guest: {calendar, eventId, status}."""

    calendar: str
    event_id: str
    status: Literal["needsAction", "declined", "tentative", "accepted"]

    def run(self, state: GoogleState) -> object:
        calendar = state.calendars.owned_by(self.calendar)
        return view(state.calendars.respond(calendar, self.event_id, status=self.status), self.calendar)


class ShowCalendar(Command[GoogleState], frozen=True):
    """Every event on a calendar, deleted ones too: {calendar}."""

    calendar: str

    def run(self, state: GoogleState) -> object:
        entries = state.calendars.owned_by(self.calendar).entries.values()
        return [view(entry.record, self.calendar) for entry in entries if not entry.gone]


class RevokeAccess(Command[GoogleState], frozen=True):
    """Revoke a person's grants or a service account: {email}."""

    email: str

    def run(self, state: GoogleState) -> object:
        state.accounts.revoke(self.email)
        return {"revoked": self.email}


class Restore(Command[GoogleState], frozen=True):
    """Undo a revocation: {email}."""

    email: str

    def run(self, state: GoogleState) -> object:
        state.accounts.restore(self.email)
        return {"restored": self.email}


class AddApp(Command[GoogleState], frozen=True):
    """Create an OAuth client and return its JSON file: {name, redirectUris}."""

    name: str
    redirect_uris: list[str]

    def run(self, state: GoogleState) -> object:
        return state.add_app(self.name, redirect_uris=self.redirect_uris)


class GiveConsent(Command[GoogleState], frozen=True):
    """What the next person does on the consent page: {email, allow, scopes (null: all)}."""

    email: str = ""
    allow: bool = True
    scopes: list[str] | None = None

    def run(self, state: GoogleState) -> object:
        state.consents.choices.append(ConsentChoice(email=self.email, allow=self.allow, scopes=self.scopes))
        return {"planned": len(state.consents.choices)}


class RevokeGrant(Command[GoogleState], frozen=True):
    """Revoke the access of every app of a person: {email}."""

    email: str

    def run(self, state: GoogleState) -> object:
        return {"ended": state.consents.revoke_all(self.email)}


class EndTokens(Command[GoogleState], frozen=True):
    """Invalidate every access token: {}."""

    def run(self, state: GoogleState) -> object:
        state.accounts.end_tokens()
        return {}


class ExpireSyncTokens(Command[GoogleState], frozen=True):
    """Expire the sync tokens of a calendar, or of all: {calendar}."""

    calendar: str = ""

    def run(self, state: GoogleState) -> object:
        calendars = (
            [state.calendars.owned_by(self.calendar)] if self.calendar else list(state.calendars.all())
        )
        for calendar in calendars:
            calendar.generation += 1
        return {"expired": [calendar.email for calendar in calendars]}


class Pushes(Command[GoogleState], frozen=True):
    """Drop, double or delay the next pushes: {act, count, delayS}."""

    act: Literal["drop", "double", "delay"]
    count: FaultCount = 1
    delay_s: float = 0.0

    def run(self, state: GoogleState) -> object:
        state.channels.push_faults.extend([PushFault(act=self.act, delay_s=self.delay_s)] * self.count)
        return {"planned": len(state.channels.push_faults)}


class ListChannels(Command[GoogleState], frozen=True):
    """Every channel with its state and counts: {}."""

    def run(self, state: GoogleState) -> object:
        return state.channels.all()


class SetSheet(Command[GoogleState], frozen=True):
    """Set a sheet's rows: {spreadsheetId, sheet, rows, readers (null: everybody)}."""

    spreadsheet_id: str
    sheet: str
    rows: Sequence[Sequence[Cell]]
    readers: list[str] | None = None

    def run(self, state: GoogleState) -> object:
        spreadsheet = state.spreadsheets.setdefault(self.spreadsheet_id, Spreadsheet({}))
        spreadsheet.sheets[self.sheet] = [list(row) for row in self.rows]
        spreadsheet.readers = self.readers
        return {"rows": len(self.rows)}


class SetQuota(Command[GoogleState], frozen=True):
    """Limit each caller's calls a minute, or refill: {perMinute (null: no limit), status, reason}."""

    per_minute: Annotated[int, Meta(ge=0)] | None = None
    status: Literal[403, 429] = 403
    reason: str = "userRateLimitExceeded"

    def run(self, state: GoogleState) -> object:
        quota = state.quota
        quota.refill()
        quota.per_minute, quota.status, quota.reason = self.per_minute, self.status, self.reason
        return {"perMinute": self.per_minute}


COMMANDS: Final[dict[str, type[Command[GoogleState]]]] = {
    "people": AddPerson,
    "service-accounts": AddServiceAccount,
    "apps": AddApp,
    "consent": GiveConsent,
    "revoke-grant": RevokeGrant,
    "create-event": CreateEvent,
    "update-event": UpdateEvent,
    "delete-event": DeleteEvent,
    "respond": Respond,
    "show-calendar": ShowCalendar,
    "revoke": RevokeAccess,
    "restore": Restore,
    "end-tokens": EndTokens,
    "expire-sync-tokens": ExpireSyncTokens,
    "pushes": Pushes,
    "channels": ListChannels,
    "sheet": SetSheet,
    "quota": SetQuota,
}
