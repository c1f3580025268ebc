"""What a person can cause in the simulated Google: one command each, by name under `/_control`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from holdfast.simulators.google.channels import PushFault
from holdfast.simulators.google.consents import ConsentChoice
from holdfast.simulators.google.events import view
from holdfast.simulators.google.sheets import Cell, Spreadsheet
from holdfast.simulators.google.world import GoogleState
from holdfast.simulators.server import Command

Few = Annotated[int, Meta(ge=1, le=100_000)]


class AddPerson(Command[GoogleState], frozen=True):
    """Add somebody with a calendar: {email, timeZone}."""

    email: str
    time_zone: str = "UTC"

    def run(self, world: GoogleState) -> object:
        world.add_person(self.email, time_zone=self.time_zone)
        return {"email": self.email}


class AddServiceAccount(Command[GoogleState], frozen=True):
    """Make a service account and give its key file: {name, scopes (delegated; null for all)}."""

    name: str
    scopes: list[str] | None = None

    def run(self, world: GoogleState) -> object:
        return world.add_service_account(self.name, scopes=self.scopes)


class CreateEvent(Command[GoogleState], frozen=True):
    """Create an event as the calendar's owner: {calendar, event}."""

    calendar: str
    event: dict[str, Any]

    def run(self, world: GoogleState) -> object:
        record = world.calendars.insert(world.calendars.owned_by(self.calendar), self.event)
        return view(record, self.calendar)


class UpdateEvent(Command[GoogleState], frozen=True):
    """Change an event as the calendar's owner: {calendar, eventId, patch}."""

    calendar: str
    event_id: str
    patch: dict[str, Any]

    def run(self, world: GoogleState) -> object:
        calendar = world.calendars.owned_by(self.calendar)
        return view(world.calendars.patch(calendar, self.event_id, patch=self.patch), self.calendar)


class DeleteEvent(Command[GoogleState], frozen=True):
    """Delete an event as the calendar's owner: {calendar, eventId}."""

    calendar: str
    event_id: str

    def run(self, world: GoogleState) -> object:
        world.calendars.delete(world.calendars.owned_by(self.calendar), self.event_id)
        return {"deleted": self.event_id}


class Respond(Command[GoogleState], frozen=True):
    """Answer an invitation as a guest: {calendar, eventId, status}."""

    calendar: str
    event_id: str
    status: Literal["needsAction", "declined", "tentative", "accepted"]

    def run(self, world: GoogleState) -> object:
        calendar = world.calendars.owned_by(self.calendar)
        return view(world.calendars.respond(calendar, self.event_id, status=self.status), self.calendar)


class ShowCalendar(Command[GoogleState], frozen=True):
    """Every event on a calendar, deleted ones too: {calendar}."""

    calendar: str

    def run(self, world: GoogleState) -> object:
        entries = world.calendars.owned_by(self.calendar).entries.values()
        return [view(entry.record, self.calendar) for entry in entries if not entry.gone]


class RevokeAccess(Command[GoogleState], frozen=True):
    """Revoke a person's grants or a service account: {email}."""

    email: str

    def run(self, world: GoogleState) -> object:
        world.accounts.revoke(self.email)
        return {"revoked": self.email}


class Restore(Command[GoogleState], frozen=True):
    """Take a revocation back: {email}."""

    email: str

    def run(self, world: GoogleState) -> object:
        world.accounts.restore(self.email)
        return {"restored": self.email}


class AddApp(Command[GoogleState], frozen=True):
    """Make an OAuth client that people can let in and give its JSON file: {name, redirectUris}."""

    name: str
    redirect_uris: list[str]

    def run(self, world: GoogleState) -> object:
        return world.add_app(self.name, redirect_uris=self.redirect_uris)


class GiveConsent(Command[GoogleState], frozen=True):
    """What the next person does on the page of consent: {email, allow, scopes (null: all that is asked)}."""

    email: str = ""
    allow: bool = True
    scopes: list[str] | None = None

    def run(self, world: GoogleState) -> object:
        world.consents.choices.append(ConsentChoice(email=self.email, allow=self.allow, scopes=self.scopes))
        return {"planned": len(world.consents.choices)}


class RevokeGrant(Command[GoogleState], frozen=True):
    """A person removes the access of every app they let in: {email}."""

    email: str

    def run(self, world: GoogleState) -> object:
        return {"ended": world.consents.revoke_all(self.email)}


class EndTokens(Command[GoogleState], frozen=True):
    """Make every access token given out so far useless: {}."""

    def run(self, world: GoogleState) -> object:
        world.accounts.end_tokens()
        return {}


class ExpireSyncTokens(Command[GoogleState], frozen=True):
    """Make the sync tokens of a calendar, or of all, too old: {calendar}."""

    calendar: str = ""

    def run(self, world: GoogleState) -> object:
        named = [world.calendars.owned_by(self.calendar)] if self.calendar else list(world.calendars.all())
        for calendar in named:
            calendar.generation += 1
        return {"expired": [calendar.email for calendar in named]}


class Pushes(Command[GoogleState], frozen=True):
    """Drop, double or delay the next pushes: {act, count, delayS}."""

    act: Literal["drop", "double", "delay"]
    count: Few = 1
    delay_s: float = 0.0

    def run(self, world: GoogleState) -> object:
        world.channels.push_faults.extend([PushFault(act=self.act, delay_s=self.delay_s)] * self.count)
        return {"planned": len(world.channels.push_faults)}


class ListChannels(Command[GoogleState], frozen=True):
    """Every channel and what became of it: {}."""

    def run(self, world: GoogleState) -> object:
        return world.channels.all()


class SetSheet(Command[GoogleState], frozen=True):
    """Set a sheet's rows: {spreadsheetId, sheet, rows, readers (null: everybody)}."""

    spreadsheet_id: str
    sheet: str
    rows: Sequence[Sequence[Cell]]
    readers: list[str] | None = None

    def run(self, world: GoogleState) -> object:
        spreadsheet = world.spreadsheets.setdefault(self.spreadsheet_id, Spreadsheet({}))
        spreadsheet.sheets[self.sheet] = [list(row) for row in self.rows]
        spreadsheet.readers = self.readers
        return {"rows": len(self.rows)}


class SetQuota(Command[GoogleState], frozen=True):
    """Limit each caller's calls a minute, or refill: {perMinute (null: no limit), status, reason}."""

    per_minute: Annotated[int, Meta(ge=0)] | None = None
    status: Literal[403, 429] = 403
    reason: str = "userRateLimitExceeded"

    def run(self, world: GoogleState) -> object:
        quota = world.quota
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
