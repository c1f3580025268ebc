"""The bot: everything that one process needs to serve the chats, built from the settings."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
import structlog

from holdfast.clock import Clock
from holdfast.errors import ConfigError, HoldfastError
from holdfast.ids import join_segments
from holdfast.kit.connections import ConsentPurpose, FinishedConsent
from holdfast.kit.inbox import InboxItem
from holdfast.kit.rate_limit import NestedRateLimit, RateQuota
from holdfast.model import SERVICE
from holdfast.operation import Operator
from holdfast.providers.google_oauth import OAuthClient, UserGrants
from holdfast.providers.language_model import LanguageModel
from holdfast.providers.rest import CallLimits
from holdfast.providers.telegram import TelegramBot, Update
from holdfast.service import Context
from holdfast.services.c4lendar.calendars import ChatCalendars
from holdfast.services.c4lendar.chat_queue import start_in_order
from holdfast.services.c4lendar.conversation import Conversation
from holdfast.services.c4lendar.incoming import Incoming, incoming_of
from holdfast.services.c4lendar.models import GoogleConnection
from holdfast.services.c4lendar.operations import ChatOperations
from holdfast.services.c4lendar.placeholder_accounts import end_placeholder
from holdfast.services.c4lendar.settings import EVENTS_SCOPE, C4lendarSettings
from holdfast.services.c4lendar.text_parser import ModelParser, RuleParser, TextParser
from holdfast.services.c4lendar.workflow import UpdateWorkflow
from holdfast.store import Store, Transaction, Write, put
from holdfast.web import callback_url, start_url

# Names the people of a chat on the audit trail.
ACTOR_PREFIX: Final = "telegram:"
PURPOSE: Final = "c4lendar"
PROVIDER: Final = "google"
# Telegram counts messages as they arrive, and some take longer on their way than others.
SEND_PERIOD_S: Final = 1.1
log = structlog.get_logger("holdfast.c4lendar")


class Bot:
    """The service in one process."""

    def __init__(self, context: Context) -> None:
        self.settings: C4lendarSettings = context.settings
        self._context = context
        self.operations = ChatOperations(
            context.store, context.connections, vault=context.vault, time_zone=self.settings.time_zone,
            start_run=self.start_run,
        )  # fmt: skip
        all_chats = RateQuota(count=self.settings.messages_per_s, period_s=SEND_PERIOD_S)
        one_chat = RateQuota(count=self.settings.messages_per_chat_s, period_s=SEND_PERIOD_S)
        self._send_limit = NestedRateLimit(
            context.rate_limit("messages", all_chats), context.rate_limit("messages to a chat", one_chat)
        )

    @property
    def clock(self) -> Clock:
        return self._context.clock

    @property
    def store(self) -> Store:
        return self._context.store

    @property
    def webhook_url(self) -> str:
        """Where Telegram is to send updates; empty without a public address."""
        public_url = self._context.public_url.rstrip("/")
        return f"{public_url}/c4lendar/telegram-webhook" if public_url else ""

    async def start(self) -> None:
        """Tell Telegram where to send updates; `doctor` shows when that failed."""
        settings = self.settings
        try:
            if settings.polling:
                await self.telegram.delete_webhook()
            elif settings.register_webhook and self.webhook_url and settings.webhook_secret:
                await self.telegram.set_webhook(self.webhook_url, secret_token=settings.webhook_secret)
        except HoldfastError as fault:
            log.warning("webhook not registered with Telegram", error=fault.message)

    async def tenant_of(self, account: str) -> str | None:
        """A chat is its own tenant."""
        return account or None

    @cached_property
    def parser(self) -> TextParser:
        """The language model where one is set, else the rules."""
        settings = self.settings
        if not (settings.model_url and settings.model_name):
            return RuleParser()
        # One attempt: a person waits, and the rules need no model.
        limits = CallLimits(call_s=settings.model_s, attempts_max=1)
        model = LanguageModel(
            self._context.http_session, settings.model_key, clock=self._context.clock,
            base_url=settings.model_url, model=settings.model_name, limits=limits,
        )  # fmt: skip
        return ModelParser(model)

    @cached_property
    def telegram(self) -> TelegramBot:
        return TelegramBot(
            self._context.http_session, self.settings.bot_token, clock=self._context.clock,
            base_url=self.settings.telegram_url, send_limit=self._wait_for_turn,
        )  # fmt: skip

    async def _wait_for_turn(self, chat_id: int) -> None:
        await self._send_limit.acquire(str(chat_id))

    @cached_property
    def grants(self) -> UserGrants:
        return UserGrants(self._context.http_session, self._client(), clock=self._context.clock)

    def _client(self) -> OAuthClient:
        try:
            return OAuthClient.parse(Path(self.settings.google_client).read_bytes())
        except OSError as error:
            raise ConfigError(
                f"[service.c4lendar] google_client: {self.settings.google_client} can't be read "
                f"({error.strerror}); download the client's JSON from the Cloud console"
            ) from None

    @property
    def purpose(self) -> ConsentPurpose:
        return ConsentPurpose(
            name=PURPOSE, provider=PROVIDER, scopes=[EVENTS_SCOPE], title="Google Calendar for a chat",
            hook=self._store_account, for_operators=False,
        )  # fmt: skip

    async def _store_account(self, tx: Transaction, finished: FinishedConsent) -> list[Write]:
        """Store the account's row and start the run that tells its chat, in the commit that connects it."""
        connection, now = finished.connection, self.clock.now()
        chat_id, user = connection.tenant_id, finished.payload.get("user")
        user_id = user if isinstance(user, int) else 0
        stored = await tx.get(GoogleConnection, join_segments(chat_id, connection.account))
        row = GoogleConnection(
            chat_id=chat_id, google_sub=connection.account, google_email=connection.name.lower(),
            scopes=" ".join(connection.scopes), connected_by_telegram_user_id=user_id,
            connection_id=connection.id, created_at=stored.doc.created_at if stored else now, updated_at=now,
        )  # fmt: skip
        incoming = Incoming(kind="connected", chat_id=int(chat_id), user_id=user_id, text=connection.account)
        await self.start_run(tx, incoming)
        await end_placeholder(tx, self._context.connections, row)
        return [put(row)]

    @cached_property
    def workflow(self) -> UpdateWorkflow:
        context = self._context
        calendars = ChatCalendars(
            context.store, context.connections, session=context.http_session, clock=context.clock,
            base_url=self.settings.calendar_url,
        )  # fmt: skip
        conversation = Conversation(
            context.store, self.operations, bot=self.telegram, parser=self.parser,
            owner_id=self.settings.owner_id, link_for=self.make_link, clock=context.clock,
        )  # fmt: skip
        return UpdateWorkflow(
            conversation, self.operations, calendars=calendars, bot=self.telegram, operator=self.operator,
            store=context.store,
        )  # fmt: skip

    def operator(self, incoming: Incoming) -> Operator:
        """The person for whom the bot acts in a chat."""
        return Operator(
            tenant_id=incoming.tenant_id, actor=f"{ACTOR_PREFIX}{incoming.user_id}", caller=SERVICE,
            audits=self._context.audit,
        )  # fmt: skip

    async def make_link(self, chat_id: str, user_id: int) -> str:
        """A link by which a person connects an account to a chat: once, within ten minutes."""
        public_url = self._context.public_url
        link = self._context.connections.link(
            PURPOSE, tenant_id=chat_id, payload={"chat": chat_id, "user": user_id},
            redirect_uri=callback_url(public_url),
        )  # fmt: skip
        await self._context.store.privileged().commit(link.write)
        return start_url(public_url, link.token)

    async def handle(self, item: InboxItem, tx: Transaction) -> None:
        """Start the run of an update, in the commit that finishes the inbox item."""
        incoming = incoming_of(msgspec.json.decode(item.body, type=Update))
        if incoming is None:
            return
        await self.start_run(tx, incoming)

    async def start_run(self, tx: Transaction, incoming: Incoming) -> None:
        """Start the run of what somebody did, in its chat's order."""
        await start_in_order(tx, self.store, self.workflow.workflow, incoming)
