"""The conversation: what a message, a button or a membership means, and what the bot does about it.

Each command reads the chat, changes it by an operation, and returns a `Plan`; the accounts' calendars and the
answer follow in steps of their own. `key` is the step's: an operation that was done before a crash is found.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from holdfast.clock import Clock
from holdfast.errors import ConflictError, InvalidError, NotFoundError
from holdfast.ids import join_segments
from holdfast.operation import Operator
from holdfast.providers.telegram import TelegramBot
from holdfast.services.c4lendar.domain.commands import BotCommand, find_command
from holdfast.services.c4lendar.domain.parser import Question
from holdfast.services.c4lendar.domain.references import find_reference, reference_of, uids_of
from holdfast.services.c4lendar.domain.replies import HELP, NO_ACCOUNT, changes_text, escape, when_text
from holdfast.services.c4lendar.domain.title_search import find_by_title
from holdfast.services.c4lendar.events import details_of
from holdfast.services.c4lendar.incoming import Incoming
from holdfast.services.c4lendar.known_chats import KnownChats
from holdfast.services.c4lendar.models import BotChat, BotEvent, BotMessage, SelectedEvent
from holdfast.services.c4lendar.operations import ChatOperations
from holdfast.services.c4lendar.placeholder_accounts import move_mappings
from holdfast.services.c4lendar.plan import NOTHING, Button, Plan
from holdfast.services.c4lendar.text_parser import TextParser
from holdfast.store import Query, Store, put

CHOICES_MAX: Final = 8
UPCOMING: Final = timedelta(days=366)
VIEW_DAYS: Final = {"today": (0, 1), "tomorrow": (1, 2), "week": (0, 7)}
# Makes the sign-in link of a person in a chat.
LinkFor = Callable[[str, int], Awaitable[str]]


class ChatTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One message in its chat, with the command's argument and who the bot acts for."""

    incoming: Incoming
    chat: BotChat
    argument: str
    by: Operator
    key: str
    at: datetime

    @property
    def user_id(self) -> int:
        return self.incoming.user_id


class Conversation:
    """Decides what the bot does.

    Example: `plan = await conversation.decide(incoming, by=by, key=step.key, at=run.created_at)`
    """

    def __init__(
        self, store: Store, operations: ChatOperations, *, bot: TelegramBot, parser: TextParser,
        owner_id: int, link_for: LinkFor, clock: Clock,
    ) -> None:  # fmt: skip
        self._store, self._operations, self._bot, self._parser = store, operations, bot, parser
        self._owner_id, self._link_for, self._clock = owner_id, link_for, clock
        self._chats = KnownChats(store, owner_id=owner_id, clock=clock)
        self._commands: dict[str, Callable[[ChatTurn], Awaitable[Plan]]] = {
            "start": self._help, "help": self._help, "cal": self._cal, "alt": self._alt, "del": self._del,
            "aut": self._aut, "dis": self._dis, "view": self._view, "undo": self._undo, "tz": self._tz,
        }  # fmt: skip

    async def decide(self, incoming: Incoming, *, by: Operator, key: str, at: datetime) -> Plan:
        """Return the plan for what a person did; what was refused is the plan's text."""
        chat = await self._chats.remember(incoming)
        turn = ChatTurn(incoming=incoming, chat=chat, argument="", by=by, key=key, at=at)
        try:
            return await self._decide(turn)
        except (ConflictError, InvalidError, NotFoundError) as refused:
            text = escape(refused.message[:1].upper() + refused.message[1:])
            return Plan(text=f"{text}.", query_id=incoming.query_id)

    async def _decide(self, turn: ChatTurn) -> Plan:
        incoming = turn.incoming
        if incoming.kind == "membership":
            return await self._membership(turn)
        if incoming.kind == "connected":
            return await self._connected(turn)
        if incoming.kind == "retry":
            return await self._retry(turn)
        if incoming.kind == "button":
            return await self._button(turn) if turn.chat.status == "approved" else NOTHING
        command = await self._command(incoming)
        if command is None:
            return NOTHING
        turn = msgspec.structs.replace(turn, argument=command.argument)
        if command.name in ("approve", "revoke", "listchats"):
            return await self._owner_command(turn, command.name)
        if turn.chat.status != "approved":
            return await self._ask_for_approval(turn)
        done = await self._operations.changed_by_act(turn.chat.chat_id, turn.key)
        if done is not None:
            # Changed before a crash.
            return _saved(done)
        return await self._commands[command.name](turn)

    async def _command(self, incoming: Incoming) -> BotCommand | None:
        """The command of a message, or the one that a reply to the bot's question continues."""
        command = find_command(incoming.text)
        if command is not None or incoming.reply_message_id is None:
            return command
        asked = await self._message(incoming.tenant_id, incoming.reply_message_id)
        if asked is None or not asked.command:
            return None
        return BotCommand(asked.command, f"{asked.argument} {incoming.text}".strip())

    async def _message(self, chat_id: str, message_id: int) -> BotMessage | None:
        stored = await self._store.tenant(chat_id).get(BotMessage, join_segments(chat_id, str(message_id)))
        return None if stored is None else stored.doc

    # -- chats --------------------------------------------------------------------------------------

    async def _membership(self, turn: ChatTurn) -> Plan:
        incoming, chat = turn.incoming, turn.chat
        if not await self._chats.note_membership(incoming) or not incoming.present:
            return NOTHING
        if incoming.user_id == self._owner_id:
            await self._operations.approve_chat(turn.by, chat.chat_id)
            return Plan(text=HELP)
        return Plan(text="Thank you for adding me. The owner of this bot has to approve the chat first.")

    async def _ask_for_approval(self, turn: ChatTurn) -> Plan:
        chat_id = turn.chat.chat_id
        if not await self._chats.note_notice(chat_id):
            return NOTHING
        return Plan(
            text=f"This chat is not approved yet. Ask the owner of this bot to send /approve here or "
            f"<code>/approve {chat_id}</code> to the bot."
        )

    async def _owner_command(self, turn: ChatTurn, name: str) -> Plan:
        if turn.user_id != self._owner_id:
            return Plan(text="Only the owner of this bot can do that.")
        if name == "listchats":
            page = await self._operations.chats(limit=30)
            lines = [f"{one.status}: {escape(one.title)} <code>{one.chat_id}</code>" for one in page.docs]
            return Plan(text="\n".join(["<b>Chats</b>", *lines]))
        chat_id = turn.argument.split()[0] if turn.argument else turn.chat.chat_id
        by = msgspec.structs.replace(turn.by, tenant_id=chat_id)
        if name == "approve":
            chat = await self._operations.approve_chat(by, chat_id)
            return Plan(text=f"{escape(chat.title)} is approved.")
        chat = await self._operations.revoke_chat(by, chat_id)
        return Plan(text=f"{escape(chat.title)} is no longer approved.")

    async def _help(self, turn: ChatTurn) -> Plan:
        return Plan(text=HELP)

    async def _tz(self, turn: ChatTurn) -> Plan:
        if not turn.argument:
            zone = self._operations.zone_of(turn.chat).key
            return Plan(text=f"The time zone of this chat is {escape(zone)}. Change it by #tz Europe/Berlin.")
        chat = await self._operations.set_time_zone(turn.by, turn.chat.chat_id, time_zone=turn.argument)
        return Plan(text=f"The time zone of this chat is now {escape(chat.time_zone)}.")

    # -- events -------------------------------------------------------------------------------------

    async def _cal(self, turn: ChatTurn) -> Plan:
        if not await self._operations.accounts(turn.chat.chat_id):
            return Plan(text=NO_ACCOUNT)
        text = turn.argument or turn.incoming.reply_text
        zone = self._operations.zone_of(turn.chat)
        parsed = await self._parser.parse(text, now=turn.at, zone=zone)
        if isinstance(parsed, Question):
            return Plan(text=escape(parsed.text), question="cal", argument=text[:1_000])
        event = await self._operations.create_event(
            turn.by, parsed, key=turn.key, made_at=turn.at, zone=zone, user_id=turn.user_id
        )
        await self._select(turn, event.uid)
        return Plan(text="Event created", uids=(event.uid,), note=await self._conflicts(event))

    async def _conflicts(self, event: BotEvent) -> str:
        """The titles of timed events of the chat that overlap."""
        start, end = event.start_time, event.end_time
        if start is None or end is None:
            return ""
        near = await self._operations.starting(event.chat_id, since=start - timedelta(days=1), until=end)
        titles = [
            one.title
            for one in near
            if one.uid != event.uid and one.end_time is not None and one.end_time > start
        ]
        return f"At the same time: {escape(', '.join(titles[:3]))}" if titles else ""

    async def _alt(self, turn: ChatTurn) -> Plan:
        reference, text = find_reference(turn.argument)
        found = await self._target(turn, reference)
        if isinstance(found, Plan):
            return found
        before = details_of(found)
        zone = self._operations.zone_of(turn.chat)
        after = await self._parser.merge(before, text, now=turn.at, zone=zone)
        if isinstance(after, Question):
            return Plan(text=escape(after.text), question="alt", argument=f"EVT-{found.uid} {text}"[:1_000])
        await self._operations.change_event(
            turn.by, found.uid, details=after, key=turn.key, version=found.version, user_id=turn.user_id
        )
        await self._select(turn, found.uid)
        return Plan(text="Event changed", note=escape(changes_text(before, after)), uids=(found.uid,))

    async def _del(self, turn: ChatTurn) -> Plan:
        reference, words = find_reference(turn.argument)
        if words and not reference:
            found: BotEvent | Plan = await self._by_title(turn, words)
        else:
            found = await self._target(turn, reference, selected=False)
        if isinstance(found, Plan):
            return found
        await self._operations.delete_event(turn.by, found.uid, key=turn.key, user_id=turn.user_id)
        return Plan(text="Event deleted", uids=(found.uid,))

    async def _undo(self, turn: ChatTurn) -> Plan:
        recent = await self._operations.recent(turn.chat.chat_id, deleted=True)
        if not recent:
            return Plan(text="There is nothing to undo.")
        last = max(recent, key=lambda event: event.changed_at)
        await self._operations.undo(turn.by, last.uid, key=turn.key, user_id=turn.user_id)
        return Plan(text="Last change undone", uids=(last.uid,))

    async def _retry(self, turn: ChatTurn) -> Plan:
        """Bring an event into its accounts again, and correct the newest message about it."""
        event = await self._operations.event(turn.chat.chat_id, turn.incoming.text)
        query = Query(BotMessage).where("uid", "==", event.uid).order_by("-sent_at").limit(1)
        newest = (await self._store.tenant(turn.chat.chat_id).query(query)).docs
        if not newest:
            return Plan(uids=(event.uid,))
        return msgspec.structs.replace(_saved(event), edit=int(newest[0].message_id))

    async def _view(self, turn: ChatTurn) -> Plan:
        word = turn.argument.lower().strip() or "today"
        if word not in VIEW_DAYS:
            return Plan(text="Send #view today, #view tomorrow or #view week.")
        zone = self._operations.zone_of(turn.chat)
        midnight = turn.at.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
        first, last = VIEW_DAYS[word]
        events = await self._operations.starting(
            turn.chat.chat_id, since=midnight + timedelta(days=first), until=midnight + timedelta(days=last)
        )
        if not events:
            return Plan(text=f"No events {'this week' if word == 'week' else word}.")
        lines = [f"{when_text(details_of(one))}  {escape(one.title)}" for one in events]
        return Plan(text="\n".join([f"<b>Events {'of 7 days' if word == 'week' else word}</b>", *lines]))

    async def _target(self, turn: ChatTurn, reference: str, *, selected: bool = True) -> BotEvent | Plan:
        """The event a command is about: its reference, the replied message's, the selected, the newest."""
        recent = await self._operations.recent(turn.chat.chat_id)
        if reference:
            return await self._by_reference(turn, reference, recent)
        if turn.incoming.reply_message_id is not None:
            message = await self._message(turn.chat.chat_id, turn.incoming.reply_message_id)
            if message is not None and message.uid:
                return await self._operations.event(turn.chat.chat_id, message.uid)
        if selected:
            stored = await self._store.tenant(turn.chat.chat_id).get(
                SelectedEvent, join_segments(turn.chat.chat_id, str(turn.user_id))
            )
            chosen = [event for event in recent if stored is not None and event.uid == stored.doc.uid]
            if chosen:
                return chosen[0]
        if not recent:
            raise NotFoundError("this chat has no event yet; add one by #cal")
        return recent[0]

    async def _by_reference(self, turn: ChatTurn, reference: str, recent: list[BotEvent]) -> BotEvent | Plan:
        if len(reference) == 26:
            return await self._operations.event(turn.chat.chat_id, reference)
        uids = set(uids_of(reference, [event.uid for event in recent]))
        found = [event for event in recent if event.uid in uids]
        if not found:
            raise NotFoundError(f"this chat has no recent event EVT-{reference}")
        return found[0] if len(found) == 1 else self._choice(found, recent, verb=_verb(turn))

    async def _by_title(self, turn: ChatTurn, words: str) -> BotEvent | Plan:
        recent = await self._operations.recent(turn.chat.chat_id)
        found = find_by_title(words, recent)
        if not found:
            raise NotFoundError("no recent event has a title like that; #view week lists them")
        return found[0] if len(found) == 1 else self._choice(found, recent, verb="del")

    def _choice(self, found: list[BotEvent], recent: list[BotEvent], *, verb: str) -> Plan:
        others = [event.uid for event in recent]
        buttons = tuple(
            Button(
                f"{one.title} · {when_text(details_of(one))} · {reference_of(one.uid, others)}"[:60],
                f"{verb}:{one.uid}",
            )
            for one in found[:CHOICES_MAX]
        )
        return Plan(text="Which one?", buttons=buttons)

    async def _select(self, turn: ChatTurn, uid: str) -> None:
        selection = SelectedEvent(
            chat_id=turn.chat.chat_id, user_id=str(turn.user_id), uid=uid, selected_at=self._clock.now()
        )
        await self._store.tenant(turn.chat.chat_id).commit(put(selection))

    async def _button(self, turn: ChatTurn) -> Plan:
        verb, _, value = turn.incoming.text.partition(":")
        common = {"edit": turn.incoming.message_id, "query_id": turn.incoming.query_id}
        if verb == "del":
            event = await self._operations.delete_event(turn.by, value, key=turn.key, user_id=turn.user_id)
            return Plan(text="Event deleted", uids=(event.uid,), **common)  # type: ignore[arg-type]
        if verb == "sel":
            event = await self._operations.event(turn.chat.chat_id, value)
            await self._select(turn, event.uid)
            text = f"Selected: {escape(event.title)}. Send #alt with the change."
            return Plan(text=text, **common)  # type: ignore[arg-type]
        if verb == "add":
            return await self._catch_up(turn, value)
        return Plan(query_id=turn.incoming.query_id)

    async def _catch_up(self, turn: ChatTurn, google_sub: str) -> Plan:
        """Bring the chat's future events into an account that was connected later."""
        now = self._clock.now()
        events = await self._operations.starting(turn.chat.chat_id, since=now, until=now + UPCOMING)
        uids = tuple(event.uid for event in events[:100])
        text = "Upcoming events added" if uids else "There are no upcoming events."
        return Plan(
            text=text, uids=uids, account=google_sub, edit=turn.incoming.message_id,
            query_id=turn.incoming.query_id,
        )  # fmt: skip

    # -- accounts -----------------------------------------------------------------------------------

    async def _aut(self, turn: ChatTurn) -> Plan:
        incoming = turn.incoming
        if not incoming.private and incoming.user_id != self._owner_id:
            member = await self._bot.get_chat_member(incoming.chat_id, incoming.user_id)
            if not member.administers:
                return Plan(text="Only administrators of this group can connect an account.")
        accounts = await self._operations.accounts(turn.chat.chat_id)
        lines = [f"· {escape(one.google_email)}" for one in accounts] or ["none yet"]
        url = await self._link_for(turn.chat.chat_id, incoming.user_id)
        text = "\n".join([
            "<b>Connected accounts</b>", *lines, "",
            f"{escape(incoming.user_name)}, this link connects another one. It works once, for 10 minutes.",
        ])  # fmt: skip
        return Plan(text=text, buttons=(Button("Connect a Google account", url=url),))

    async def _connected(self, turn: ChatTurn) -> Plan:
        chat_id, now = turn.chat.chat_id, self._clock.now()
        accounts = await self._operations.accounts(chat_id)
        connected = [one for one in accounts if one.google_sub == turn.incoming.text]
        for one in connected:
            await move_mappings(self._store.tenant(chat_id), one)
        email = connected[0].google_email if connected else ""
        upcoming = await self._operations.starting(chat_id, since=now, until=now + UPCOMING)
        buttons = (Button("Add upcoming events", f"add:{turn.incoming.text}"),) if upcoming else ()
        return Plan(text=f"Connected: {escape(email)}", buttons=buttons)

    async def _dis(self, turn: ChatTurn) -> Plan:
        accounts = await self._operations.accounts(turn.chat.chat_id)
        wanted = turn.argument.strip().lower()
        if not wanted:
            lines = [f"· {escape(one.google_email)}" for one in accounts] or ["none"]
            return Plan(
                text="\n".join(
                    ["<b>Connected accounts</b>", *lines, "Send #dis with an address to disconnect it."]
                )
            )
        found = [one for one in accounts if one.google_email == wanted]
        if not found:
            raise NotFoundError(f"{wanted[:100]} is not connected to this chat")
        for account in found:
            await self._operations.disconnect(turn.by, account.google_sub)
        return Plan(text=f"{escape(wanted)} is disconnected from this chat. Its events stay in its calendar.")


def _saved(event: BotEvent) -> Plan:
    """The plan for an event that is stored: only its accounts and the answer are left to do."""
    return Plan(text="Event deleted" if event.deleted else "Event saved", uids=(event.uid,))


def _verb(turn: ChatTurn) -> str:
    """The button's verb: a choice of `#del` deletes, one of `#alt` selects."""
    command = find_command(turn.incoming.text)
    return "del" if command is not None and command.name == "del" else "sel"
