"""What is kept: whether it can be opened, whether somebody works on it, whether somebody may come in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from holdfast import __version__
from holdfast.clock import SharedClock
from holdfast.errors import DecryptionError
from holdfast.kit import ALL_TENANTS
from holdfast.kit.access import ApiTokens
from holdfast.kit.access.users import Users
from holdfast.kit.channels.key_uses import channels_of_unknown_keys, describe_unknown_keys
from holdfast.kit.processes import describe, is_newer, newer_collections, store_state
from holdfast.kit.schedules import Schedule
from holdfast.model import Document, schema_of
from holdfast.model.path import split_key
from holdfast.operations.audit import check_trails
from holdfast.operations.endpoints import CircuitRow, EndpointRow, list_circuits, list_endpoints
from holdfast.operations.outboxes import dead_letter_counts, unresolved
from holdfast.runtime import BACKLOG_S_MAX, Runtime, sealed_fields
from holdfast.runtime.health import SKEW_S_MAX
from holdfast.service import CheckResult, Health
from holdfast.store import Query

LOOKED_AT: Final = 200
ENDPOINTS_NAMED: Final = 5
_MAY_ALL: Final = ("admin", "owner", "service")


async def kept(runtime: Runtime) -> AsyncIterator[CheckResult]:
    """Every check of a store that is as declared."""
    yield await release(runtime)
    yield await processes(runtime)
    yield await admin(runtime)
    yield await sealed(runtime)
    yield await audit_trails(runtime)
    yield await channel_keys(runtime)
    yield clock_skew(runtime)
    yield await backlog(runtime)
    yield await dead_letters(runtime)
    yield await endpoints(runtime)
    yield await schedules(runtime)
    for service in runtime.services:
        tell = runtime.parts[service.name].health
        if tell is not None:
            yield _told(f"health of {service.address}", await tell())


def _told(name: str, health: Health) -> CheckResult:
    """A service's own word on how it is doing."""
    said = "; ".join(health.reasons) or health.status
    fine = health.status == "ok"
    remedy = "" if fine else "see its page in the console, and that `holdfast serve` or `holdfast work` runs"
    return CheckResult(name, fine, said, remedy)


async def release(runtime: Runtime) -> CheckResult:
    state = await store_state(runtime.store)
    if state is None or not is_newer(state.version, than=__version__):
        return CheckResult("release", True, f"Holdfast {__version__}")
    newer = newer_collections(runtime.processes.release, state)
    can = f"it can't start: {'; '.join(newer)}" if newer else "it can work beside and after it"
    said = f"Holdfast {state.version} has worked on this store, and this is {__version__}; {can}"
    return CheckResult("release", False, said, f"upgrade: pip install 'holdfast-kit>={state.version}'")


async def processes(runtime: Runtime) -> CheckResult:
    """Name the living processes; more than one release is a roll-out that has not ended."""
    living, others = await runtime.processes.living(), await runtime.processes.other_releases()
    if not others:
        return CheckResult("processes", True, f"{len(living)} at work")
    said = f"processes of another release work on this store: {', '.join(map(describe, others))}"
    return CheckResult("processes", False, said, "finish the roll-out: stop them, or start that release here")


def clock_skew(runtime: Runtime) -> CheckResult:
    """Compare this machine's clock with the time that all processes on the store share."""
    clock = runtime.clock
    skew_s = clock.skew_s if isinstance(clock, SharedClock) else 0.0
    if abs(skew_s) <= SKEW_S_MAX:
        return CheckResult("store clock", True, f"{abs(skew_s):.1f} s from this machine's")
    said = f"this machine's clock is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the store's"
    return CheckResult("store clock", False, said, "set the clock of whichever is wrong; let NTP keep both")


async def admin(runtime: Runtime) -> CheckResult:
    if await Users(runtime.store).any_exists():
        return CheckResult("admin", True, "people can sign in")
    now = runtime.clock.now()
    tokens, _ = await ApiTokens(runtime.store).page(limit=LOOKED_AT)
    for token in tokens:
        alive = token.revoked_at is None and (token.expires_at is None or token.expires_at > now)
        if alive and token.role in _MAY_ALL:
            return CheckResult("admin", True, "there is a token that may do everything")
    remedy = "open the link that `holdfast serve` prints, or `holdfast tokens create admin --role admin`"
    return CheckResult("admin", False, "nobody can sign in or call as administrator", remedy)


async def sealed(runtime: Runtime) -> CheckResult:
    """Whether the keys that are set open what is kept: the first few of each collection tell."""
    for kind, fields in sealed_fields(runtime.services).items():
        for name in fields:
            unreadable = await _unreadable(runtime, kind, name)
            if unreadable:
                said = f"the keys that are set don't open {schema_of(kind).name} {unreadable!r}"
                remedy = (
                    "put the key that sealed it back into HOLDFAST_KEYS, after the current one; for values "
                    "of a former system set HOLDFAST_LEGACY_KEY"
                )
                return CheckResult("sealed secrets", False, said, remedy)
    return CheckResult("sealed secrets", True, "the keys that are set open them")


async def audit_trails(runtime: Runtime) -> CheckResult:
    """Whether keys authenticate the heads of the audit trails, and these continue their checkpoints."""
    faults = await check_trails(runtime)
    if not faults:
        return CheckResult("audit trails", True, "authentic, and as their checkpoints say")
    trail, tenant_id, fault = faults[0]
    said = f"{len(faults)} not sound, first: {trail} of {tenant_id}: {fault.message}"
    verify = f"`holdfast audit verify --trail {trail} --tenant {tenant_id}`"
    remedy = (
        f"find out who wrote to the database, with {verify}; after restoring a backup, delete "
        f"{runtime.checkpoints.path}; put a key that was removed too early back into HOLDFAST_KEYS"
    )
    if fault.kind == "unsigned":
        remedy = f"check it with {verify}, then sign it with `holdfast keys rotate`"
    return CheckResult("audit trails", False, said, remedy)


async def channel_keys(runtime: Runtime) -> CheckResult:
    """Whether the keys that are set verify the notifications of every open channel."""
    watches = await channels_of_unknown_keys(runtime.store, runtime.vault.key_ids)
    if not watches:
        return CheckResult("channel keys", True, "the keys that are set verify notifications")
    remedy = (
        "run `holdfast serve` or `holdfast work`, which replace these channels; until then put the key back "
        "into HOLDFAST_KEYS, after the current one"
    )
    return CheckResult("channel keys", False, describe_unknown_keys(watches), remedy)


async def _unreadable(runtime: Runtime, kind: type[Document], name: str) -> str:
    field = runtime.vault.field(kind, name)
    query = Query(kind).limit(LOOKED_AT)
    query = query.across_parents() if schema_of(kind).path.nested else query
    for item in (await runtime.store.privileged().query(query)).items:
        ids = split_key(item.key)
        for text in _texts(item.doc, field.path):
            try:
                field.open(text, *ids)
            except DecryptionError:
                return "/".join(ids)
    return ""


def _texts(value: Any, path: tuple[str, ...]) -> list[str]:
    """The sealed texts at the end of a path; lists are gone through."""
    if isinstance(value, list):
        return [text for one in value for text in _texts(one, path)]
    if path and isinstance(value, object) and hasattr(value, path[0]):
        return _texts(getattr(value, path[0]), path[1:])
    return [value] if isinstance(value, str) and value else []


async def backlog(runtime: Runtime) -> CheckResult:
    old = {name: s for name, s in (await runtime.backlog()).items() if s > BACKLOG_S_MAX}
    if not old:
        return CheckResult("backlog", True, "nothing due waits for long")
    said = ", ".join(f"{name} for {s:.0f} s" for name, s in old.items())
    return CheckResult("backlog", False, f"due work waits: {said}", "run `holdfast work`, or more of them")


async def dead_letters(runtime: Runtime) -> CheckResult:
    counts = await dead_letter_counts(runtime)
    found = {name: count for name, count in counts.items() if count}
    if not found:
        return CheckResult("dead letters", True, "none")
    said = ", ".join(f"{count} in outbox {name}" for name, count in found.items())
    name = next(iter(found))
    newest = await runtime.store.privileged().query(unresolved(runtime.outboxes[name].models).limit(1))
    options = f"--outbox {name}" + "".join(f" --tenant {one.tenant_id}" for one in newest.docs)
    remedy = f"look at them with `holdfast dlq list {options}`, then `holdfast dlq replay {options}`"
    return CheckResult("dead letters", False, f"not replayed or resolved: {said}", remedy)


async def endpoints(runtime: Runtime) -> CheckResult:
    """Endpoints that take no events or fail; the remedies name the tenant of each."""
    said, remedies = list[str](), list[str]()
    for outbox in runtime.outboxes:
        disabled = await list_endpoints(runtime, ALL_TENANTS, outbox, status="disabled", limit=LOOKED_AT)
        failing = await list_circuits(runtime, ALL_TENANTS, outbox, limit=LOOKED_AT)
        said += [
            f"{one.id} of {outbox} is disabled: {one.reason or 'no reason given'}" for one in disabled.items
        ]
        said += [f"{one.endpoint_id} of {outbox} is {one.summary}" for one in failing]
        remedies += [
            f"`holdfast endpoints enable {_endpoint_options(one, one.id)}`" for one in disabled.items
        ]
        remedies += [
            f"`holdfast endpoints show {_endpoint_options(one, one.endpoint_id)}`" for one in failing
        ]
    if not said:
        return CheckResult("endpoints", True, "all take events")
    more = f" and {len(said) - ENDPOINTS_NAMED} more" if len(said) > ENDPOINTS_NAMED else ""
    remedy = f"once their receivers are well: {', '.join(remedies[:ENDPOINTS_NAMED])}"
    return CheckResult("endpoints", False, "; ".join(said[:ENDPOINTS_NAMED]) + more, remedy)


def _endpoint_options(of: EndpointRow | CircuitRow, id: str) -> str:
    return f"{id} --outbox {of.outbox} --tenant {of.tenant_id}"


async def schedules(runtime: Runtime) -> CheckResult:
    jobs = [job for parts in runtime.parts.values() for job in parts.jobs]
    found = await runtime.store.privileged().get_many(Schedule, [job.id for job in jobs]) if jobs else []
    missing = [job.name for job, stored in zip(jobs, found, strict=True) if stored is None]
    if missing:
        remedy = "start `holdfast serve` or `holdfast work` once: they declare them"
        return CheckResult("schedules", False, f"not declared yet: {', '.join(missing)}", remedy)
    return CheckResult("schedules", True, f"{len(jobs)} declared")
