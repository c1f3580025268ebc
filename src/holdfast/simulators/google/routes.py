"""The HTTP routes: the token endpoint, Calendar v3 and Sheets v4."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from holdfast.simulators.google.accounts import Token, TokenRefusal
from holdfast.simulators.google.calendars import Calendar
from holdfast.simulators.google.channels import ChannelRequest
from holdfast.simulators.google.consents import PageRefusal
from holdfast.simulators.google.event_list import (
    ListPage,
    ListQuery,
    first_page,
    instances,
    list_events,
    number,
    read_query,
    stored_page,
)
from holdfast.simulators.google.events import Data, EventRecord, tombstone, view
from holdfast.simulators.google.moments import as_instant, start_of
from holdfast.simulators.google.refusals import Refusal
from holdfast.simulators.google.sheets import Spreadsheet, values
from holdfast.simulators.google.state import GoogleState
from holdfast.simulators.server import json_response

_AUTH: Final = "https://www.googleapis.com/auth/"
_CALENDAR_WRITE: Final = frozenset({_AUTH + "calendar", _AUTH + "calendar.events"})
_CALENDAR_READ: Final = _CALENDAR_WRITE | {_AUTH + "calendar.readonly", _AUTH + "calendar.events.readonly"}
_SHEETS: Final = frozenset(
    {_AUTH + "spreadsheets", _AUTH + "spreadsheets.readonly", _AUTH + "drive", _AUTH + "drive.readonly"}
)
CALENDAR: Final = "/calendar/v3"
SHEETS: Final = "/v4/spreadsheets"

Handle = Callable[[web.Request, Token], Awaitable[web.Response]]


class Routes:
    """Handlers over one state."""

    def __init__(self, state: GoogleState) -> None:
        self._state = state

    def add_to(self, app: web.Application) -> None:
        events = CALENDAR + "/calendars/{calendar}/events"
        app.router.add_get("/o/oauth2/v2/auth", self._authorize)
        app.router.add_post("/token", self._token)
        app.router.add_post("/revoke", self._revoke)
        for method, path, handle in (
            ("GET", events, self._list),
            ("POST", events, self._insert),
            ("POST", events + "/watch", self._watch),
            ("GET", events + "/{event}", self._get),
            ("PATCH", events + "/{event}", self._patch),
            ("DELETE", events + "/{event}", self._delete),
            ("GET", events + "/{event}/instances", self._instances),
            ("POST", CALENDAR + "/channels/stop", self._stop),
            ("GET", CALENDAR + "/users/me/calendarList", self._calendars),
        ):
            app.router.add_route(method, path, self._authenticated(handle))
        app.router.add_get(SHEETS + "/{id}/values:batchGet", self._authenticated(self._batch))
        app.router.add_get(SHEETS + "/{id}/values/{range:.+}", self._authenticated(self._values))

    def _authenticated(self, handle: Handle) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def authenticated(request: web.Request) -> web.Response:
            try:
                scopes = _scopes(request)
                token = self._state.accounts.authenticate(
                    request.headers.get("Authorization", ""), any_of=scopes
                )
                self._state.quota.spend(token.email)
                return await handle(request, token)
            except Refusal as refusal:
                return error_response(request, refusal)

        return authenticated

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        try:
            return json_response(self._grant(form))
        except TokenRefusal as refusal:
            return _token_error(refusal)

    def _grant(self, form: dict[str, str]) -> dict[str, object]:
        match form.get("grant_type"):
            case "authorization_code":
                return self._state.consents.exchange(form)
            case "refresh_token":
                return self._state.consents.refresh(form)
        return self._state.accounts.grant(form, own_url=self._state.token_url)

    async def _authorize(self, request: web.Request) -> web.Response:
        try:
            location = self._state.consents.authorize(request.query)
        except PageRefusal as refusal:
            return web.Response(text=f"Error 400: {refusal.error}\n{refusal}\n", status=400)
        return web.Response(status=302, headers={"Location": location})

    async def _revoke(self, request: web.Request) -> web.Response:
        form = await request.post()
        try:
            self._state.consents.revoke(str(form.get("token") or request.query.get("token", "")))
        except TokenRefusal as refusal:
            return _token_error(refusal)
        return json_response({})

    def _calendar(self, request: web.Request, token: Token) -> Calendar:
        return self._state.calendars.visible_to(request.match_info["calendar"], token.email)

    async def _list(self, request: web.Request, token: Token) -> web.Response:
        calendar = self._calendar(request, token)
        query = read_query(request.query, calendar, now=self._state.clock.now())
        page_token = request.query.get("pageToken", "")
        return json_response(list_events(self._state.calendars, calendar, query=query, page_token=page_token))

    async def _instances(self, request: web.Request, token: Token) -> web.Response:
        calendar = self._calendar(request, token)
        query = read_query(request.query, calendar, now=self._state.clock.now())
        page = stored_page(calendar, request.query.get("pageToken", ""))
        series = self._state.calendars.get(calendar, request.match_info["event"])
        if not series.recurring:
            raise Refusal(400, "invalid", "Instances are only available for recurring events.")
        return json_response(
            first_page(calendar, page or self._all_instances(calendar, series, query), size=query.size)
        )

    def _all_instances(self, calendar: Calendar, series: EventRecord, query: ListQuery) -> ListPage:
        own = [entry.record for entry in calendar.entries.values() if entry.record.parent_id == series.id]
        changed = [
            _shown(record, calendar, query) for record in own if query.show_deleted or not record.cancelled
        ]
        items = [*instances(self._state.calendars, calendar, series, query=query), *changed]
        items.sort(key=lambda item: as_instant(start_of(item["originalStartTime"])))
        return ListPage(items, "")

    async def _get(self, request: web.Request, token: Token) -> web.Response:
        calendar = self._calendar(request, token)
        record = self._state.calendars.get(calendar, request.match_info["event"])
        if request.headers.get("If-None-Match") == record.data["etag"]:
            return web.Response(status=304, headers={"ETag": record.data["etag"]})
        return self._event(calendar, record, request)

    async def _insert(self, request: web.Request, token: Token) -> web.Response:
        calendar, body = self._calendar(request, token), await _body(request, token)
        return self._event(calendar, self._state.calendars.insert(calendar, body), request)

    async def _patch(self, request: web.Request, token: Token) -> web.Response:
        calendar, body = self._calendar(request, token), await _body(request, token)
        record = self._state.calendars.patch(
            calendar, request.match_info["event"], patch=body, if_match=request.headers.get("If-Match", "")
        )
        return self._event(calendar, record, request)

    async def _delete(self, request: web.Request, token: Token) -> web.Response:
        _check_send_updates(request)
        self._state.calendars.delete(
            self._calendar(request, token),
            request.match_info["event"],
            if_match=request.headers.get("If-Match", ""),
        )
        return web.Response(status=204)

    def _event(self, calendar: Calendar, record: EventRecord, request: web.Request) -> web.Response:
        data = view(record, calendar.email, attendees_max=number(request.query, "maxAttendees"))
        return json_response(data, headers={"ETag": data["etag"]})

    async def _watch(self, request: web.Request, token: Token) -> web.Response:
        calendar = self._calendar(request, token)
        uri = f"https://www.googleapis.com{CALENDAR}/calendars/{calendar.email}/events?alt=json"
        requested = _decode(await request.read(), ChannelRequest)
        channel = self._state.channels.open(requested, calendar=calendar.email, client=token.client, uri=uri)
        return json_response(channel.as_resource())

    async def _stop(self, request: web.Request, token: Token) -> web.Response:
        self._state.channels.stop(_decode(await request.read(), ChannelRequest), client=token.client)
        return web.Response(status=204)

    async def _calendars(self, request: web.Request, token: Token) -> web.Response:
        own = self._state.calendars.visible_to("primary", token.email)
        entry = {
            "kind": "calendar#calendarListEntry",
            "etag": f'"{own.change}"',
            "id": own.email,
            "summary": own.email,
            "timeZone": own.time_zone,
            "accessRole": "owner",
            "primary": True,
            "selected": True,
        }
        return json_response({"kind": "calendar#calendarList", "etag": f'"p{own.change}"', "items": [entry]})

    async def _values(self, request: web.Request, token: Token) -> web.Response:
        return json_response(_range(request, self._spreadsheet(request, token), request.match_info["range"]))

    async def _batch(self, request: web.Request, token: Token) -> web.Response:
        spreadsheet = self._spreadsheet(request, token)
        ranges = [_range(request, spreadsheet, text) for text in request.query.getall("ranges", [])]
        return json_response({"spreadsheetId": request.match_info["id"], "valueRanges": ranges})

    def _spreadsheet(self, request: web.Request, token: Token) -> Spreadsheet:
        spreadsheet = self._state.spreadsheets.get(request.match_info["id"])
        if spreadsheet is None:
            raise Refusal(404, "notFound", "Requested entity was not found.")
        if spreadsheet.readers is not None and token.email not in spreadsheet.readers:
            raise Refusal(403, "forbidden", "The caller does not have permission")
        return spreadsheet


def error_response(request: web.Request, refusal: Refusal) -> web.Response:
    """The refusal in the format of the API that was called."""
    return refusal.for_sheets() if request.path.startswith(SHEETS) else refusal.for_calendar()


def _scopes(request: web.Request) -> frozenset[str]:
    if request.path.startswith(SHEETS):
        return _SHEETS
    reads = request.method == "GET" or request.path.endswith(("/watch", "/stop"))
    return _CALENDAR_READ if reads else _CALENDAR_WRITE


def _range(request: web.Request, spreadsheet: Spreadsheet, text: str) -> dict[str, Any]:
    dimension = request.query.get("majorDimension", "ROWS")
    return values(spreadsheet, text, dimension=dimension, render=request.query.get("valueRenderOption", ""))


def _shown(record: EventRecord, calendar: Calendar, query: ListQuery) -> Data:
    if record.cancelled:
        return tombstone(record.data)
    return view(record, calendar.email, attendees_max=query.attendees_max)


async def _body(request: web.Request, token: Token) -> Data:
    _check_send_updates(request)
    body: Data = _decode(await request.read(), dict[str, Any])
    if body.get("attendees") and not token.delegated:
        message = "Service accounts cannot invite attendees without Domain-Wide Delegation of Authority."
        raise Refusal(403, "forbiddenForServiceAccounts", message)
    return body


def _token_error(refusal: TokenRefusal) -> web.Response:
    body = {"error": refusal.error, "error_description": refusal.description}
    return json_response(body, status=refusal.status)


def _check_send_updates(request: web.Request) -> None:
    if request.query.get("sendUpdates", "none") not in ("all", "externalOnly", "none"):
        raise Refusal(400, "invalidParameter", "Invalid value for sendUpdates.", where="sendUpdates")


def _decode(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Refusal(400, "parseError", "Parse Error") from None
