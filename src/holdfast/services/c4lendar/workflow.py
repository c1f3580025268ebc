"""The run of one update: decide, bring the accounts up to date, answer, repair what failed.

    update ──► decide ──► apply ──► answer ──► repair (until every account has it, at most a day)

Each step's effects are stored before the next begins, so that a killed process is continued where it was.
Google's inserts carry ids that we choose, so that repeating one makes no second event.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.backoff import BackOff
from holdfast.errors import ForbiddenError, GoneError, NotFoundError
from holdfast.kit.runs import Step, StepWaits, Workflow
from holdfast.operation import Operator
from holdfast.plural import plural
from holdfast.providers.telegram import TelegramBot
from holdfast.services.c4lendar.calendars import ChatCalendars
from holdfast.services.c4lendar.chat_queue import LOOK_S, is_first, leave
from holdfast.services.c4lendar.conversation import Conversation
from holdfast.services.c4lendar.domain.references import reference_of
from holdfast.services.c4lendar.domain.replies import AccountResult, cut, event_text
from holdfast.services.c4lendar.events import details_of
from holdfast.services.c4lendar.incoming import Incoming
from holdfast.services.c4lendar.models import BotMessage
from holdfast.services.c4lendar.operations import ChatOperations
from holdfast.services.c4lendar.plan import Plan
from holdfast.store import Store, put

NAME: Final = "c4lendar-update"
DAY_S: Final = 86_400.0
STEP_S: Final = 120.0
# Long enough to wait for a turn behind hundreds of messages to the same chat.
SEND_S: Final = 900.0
REPAIR_S: Final = 5.0
REPAIR_S_MAX: Final = 3_600.0


class AppliedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan with what became of its events in the accounts, and the message that says so."""

    plan: Plan
    results: dict[str, list[AccountResult]] = {}
    message_id: int | None = None
    answered_at: datetime | None = None

    @property
    def pending(self) -> bool:
        """Whether an account is to be tried again."""
        return any(one.again for results in self.results.values() for one in results)


class UpdateWorkflow:
    """The steps of a run, over what they need."""

    def __init__(
        self, conversation: Conversation, operations: ChatOperations, *, calendars: ChatCalendars,
        bot: TelegramBot, operator: Any, store: Store,
    ) -> None:  # fmt: skip
        self._conversation, self._operations, self._calendars = conversation, operations, calendars
        self._bot, self._operator, self._store, self._clock = bot, operator, store, store.clock
        self.workflow = Workflow(NAME, limit_s=2 * DAY_S)
        back_off = BackOff(first_s=0.5, wait_s_max=60.0)
        for act, limit_s in (
            (self._decide, STEP_S), (self._apply, STEP_S), (self._answer, SEND_S), (self._repair, SEND_S),
        ):  # fmt: skip
            self.workflow.step(name=act.__name__[1:], retries=20, limit_s=limit_s, back_off=back_off)(act)

    async def _decide(self, step: Step) -> Any:
        incoming = msgspec.convert(step.input, Incoming)
        if not await is_first(self._store, incoming.tenant_id, step.run.id):
            raise StepWaits(LOOK_S)
        by: Operator = self._operator(incoming)
        plan = await self._conversation.decide(incoming, by=by, key=step.key, at=step.run.created_at)
        return {"incoming": msgspec.to_builtins(incoming), "plan": msgspec.to_builtins(plan)}

    async def _apply(self, step: Step) -> Any:
        incoming, plan = _given(step)
        await leave(self._store, incoming.tenant_id, step.run.id)
        results = await self._apply_all(incoming.tenant_id, plan)
        applied = AppliedPlan(plan=plan, results=results)
        return {"incoming": step.input["incoming"], "applied": msgspec.to_builtins(applied)}

    async def _apply_all(self, chat_id: str, plan: Plan) -> dict[str, list[AccountResult]]:
        accounts = await self._calendars.accounts(chat_id) if plan.uids else []
        accounts = [one for one in accounts if plan.account in ("", one.google_sub)]
        results = {}
        for uid in plan.uids:
            event = await self._operations.event(chat_id, uid)
            results[uid] = await self._calendars.apply(event, accounts)
        return results

    async def _answer(self, step: Step) -> Any:
        incoming, applied = _applied(step)
        plan, chat_id = applied.plan, incoming.chat_id
        if plan.query_id:
            await _tolerate(self._bot.answer_callback_query(plan.query_id))
        message_id = plan.edit
        if plan.text and plan.edit is not None:
            await _tolerate(
                self._bot.edit_message_text(
                    chat_id, plan.edit, await self._text(incoming, applied), keyboard=plan.keyboard
                )
            )
        elif plan.text:
            text = await self._text(incoming, applied)
            sent = await _tolerate(
                self._bot.send_message(chat_id, text, reply_to=incoming.message_id, keyboard=plan.keyboard)
            )
            message_id = sent.message_id if sent is not None else None
        if message_id is not None and (plan.uids or plan.question):
            step.add(put(BotMessage(
                chat_id=incoming.tenant_id, message_id=str(message_id), uid=plan.uids[0] if plan.uids else "",
                command=plan.question, argument=plan.argument, sent_at=self._clock.now(),
            )))  # fmt: skip
        applied = msgspec.structs.replace(applied, message_id=message_id, answered_at=self._clock.now())
        return {"incoming": step.input["incoming"], "applied": msgspec.to_builtins(applied)}

    async def _repair(self, step: Step) -> Any:
        """Try failed accounts again, and edit the message when they caught up."""
        incoming, applied = _applied(step)
        if not applied.pending:
            return _counts(applied)
        elapsed_s = (self._clock.now() - applied.answered_at).total_seconds() if applied.answered_at else 0.0
        if elapsed_s < REPAIR_S:
            raise StepWaits(REPAIR_S)
        results = await self._apply_all(incoming.tenant_id, applied.plan)
        newest = msgspec.structs.replace(applied, results=results)
        if newest.pending and elapsed_s < DAY_S:
            # As long again as since the first try, so that a short outage is repaired soon.
            raise StepWaits(min(REPAIR_S_MAX, elapsed_s))
        if applied.message_id is not None:
            await _tolerate(
                self._bot.edit_message_text(
                    incoming.chat_id, applied.message_id, await self._text(incoming, newest)
                )
            )
        return _counts(newest)

    async def _text(self, incoming: Incoming, applied: AppliedPlan) -> str:
        plan = applied.plan
        if len(plan.uids) != 1:
            failed = sum(not one.ok for results in applied.results.values() for one in results)
            more = (
                f"\n{plural(len(plan.uids), 'event')}" + (f", {failed} failed" if failed else "")
                if plan.uids
                else ""
            )
            return cut(plan.text + more)
        chat_id, uid = incoming.tenant_id, plan.uids[0]
        event = await self._operations.event(chat_id, uid)
        others = [one.uid for one in await self._operations.recent(chat_id)]
        text = event_text(
            plan.text,
            details_of(event),
            reference=reference_of(uid, others),
            results=applied.results.get(uid, []),
        )
        return cut(f"{text}\n{plan.note}" if plan.note else text)


def _given(step: Step) -> tuple[Incoming, Plan]:
    return msgspec.convert(step.input["incoming"], Incoming), msgspec.convert(step.input["plan"], Plan)


def _applied(step: Step) -> tuple[Incoming, AppliedPlan]:
    return msgspec.convert(step.input["incoming"], Incoming), msgspec.convert(
        step.input["applied"], AppliedPlan
    )


async def _tolerate(call: Any) -> Any:
    """Await a message to a chat; a chat that is gone or has removed the bot is no reason to try again."""
    try:
        return await call
    except (ForbiddenError, GoneError, NotFoundError):
        return None


def _counts(applied: AppliedPlan) -> dict[str, int]:
    results = [one for results in applied.results.values() for one in results]
    return {"accounts": len(results), "failed": sum(not one.ok for one in results)}
