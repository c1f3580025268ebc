"""`holdfast copy`: move a store between SQLite, PostgreSQL and Firestore while its writers go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import typer

from holdfast import store_copy
from holdfast.app import open_store
from holdfast.cli.context import AsJson, print_result, print_table
from holdfast.cli.document_classes import document_classes
from holdfast.config import load_config
from holdfast.errors import ConfigError
from holdfast.logs import log_to_stderr
from holdfast.model import Document
from holdfast.plural import plural
from holdfast.progress_bar import progress_bar
from holdfast.store import Store
from holdfast.store_copy import Copy, CopyResult, WalkResult
from holdfast.store_copy.walk import Report


def copy(
    target: Annotated[
        str, typer.Option("--to", metavar="URL", envvar="HOLDFAST_COPY_TO", help="The store to make.")
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            envvar="HOLDFAST_COPY_FROM",
            help="The store to copy. Default: the configured one.",
        ),
    ] = None,
    final: Annotated[
        bool, typer.Option("--final", help="The writers are stopped: prove and finish.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Only compare; change nothing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be copied.")] = False,
    walks: Annotated[int, typer.Option(min=1, max=1_000, help="Catch up at most this many times.")] = 10,
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE[:NAME]", help="Only these classes; default: the kit's and all services'."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Move a store between SQLite, PostgreSQL and Firestore while its writers go on.

    \b
    Examples:
      holdfast copy --from sqlite:///holdfast.db --to postgresql://app@db/holdfast --dry-run
      holdfast copy --from sqlite:///holdfast.db --to postgresql://app@db/holdfast
      (stop the writers)
      holdfast copy --from sqlite:///holdfast.db --to postgresql://app@db/holdfast --final
      (start them with HOLDFAST_STORE=postgresql://app@db/holdfast)
      holdfast copy --to firestore://my-project --verify --json | jq '.named[]'

    The first run copies everything and then catches up, walk by walk, until a walk finds nothing new or
    --walks are done. When it is interrupted, the same command goes on. --final ends the copy: a walk must
    find every document the same on both sides; counts and hashes of each collection are kept as the proof.

    While writers go on, each document of the target is as the source had it at some moment of the last walk,
    but not all at the same moment: use the target only once --final has said that it is finished. Until then
    nothing else may write to it; `serve` and `work` refuse it.

    Ids, tenants, fields, times, claims with their fencing numbers and owners, and retention stay as they are;
    sealed secrets need the same HOLDFAST_KEYS. Versions are the target engine's own: whoever read a document
    before the move must read it again before writing. Documents of an older schema version arrive upgraded.
    Only collections that this installation declares are copied.

    The target must be empty, or hold an unfinished copy of the same source. Put URLs with passwords into
    HOLDFAST_COPY_FROM and HOLDFAST_COPY_TO. Exit code 1 when stores differ (--verify), or when the source
    still changes (--final).
    """
    if sum((final, verify, dry_run)) > 1:
        raise typer.BadParameter("give one of --final, --verify and --dry-run")
    log_to_stderr()
    job = _Job(source, target, models or [])
    if dry_run:
        _tell_plan(asyncio.run(job.plan()), as_json=as_json)
    elif verify:
        walked = asyncio.run(job.verify())
        _tell_verified(walked, as_json=as_json)
        raise typer.Exit(1 if walked.differing else 0)
    else:
        _tell_copied(asyncio.run(job.copy(final=final, walks_max=walks)), as_json=as_json)


class _Job:
    """Both stores of one command."""

    def __init__(self, source: str | None, target: str, models: Sequence[str]) -> None:
        config = load_config({"store": source})
        self._source, self._target = config.store, load_config({"store": target}).store
        self._env = config.prefix
        self._classes = [cls for cls in document_classes(models) if cls is not Copy]
        self.name = store_copy.name_of(self._source)
        if self.name == store_copy.name_of(self._target):
            raise ConfigError("--from and --to name the same store")
        file = store_copy.local_file(self._source)
        if file is not None and not file.exists():
            raise ConfigError(f"there is no file {file}: check --from")

    async def copy(self, *, final: bool, walks_max: int) -> CopyResult:
        async with self._opened() as (source, target):
            # Before it is changed in any way: it may be somebody's.
            await store_copy.check_target(target, self._classes, source=self.name)
            await target.migrate()
            with _progress() as report:
                return await store_copy.copy_store(
                    source, target, self._classes, name=self.name, final=final, walks_max=walks_max,
                    report=report,
                )  # fmt: skip

    async def verify(self) -> WalkResult:
        self._refuse_missing_target()
        async with self._opened() as (source, target):
            if await target.diff():
                raise ConfigError("the target is not as declared: nothing was copied to it yet")
            with _progress() as report:
                return await store_copy.verify_stores(source, target, self._classes, report=report)

    async def plan(self) -> dict[str, Any]:
        file = store_copy.local_file(self._target)
        async with self._source_alone() as source:
            counts = await store_copy.count_all(source, self._classes)
        if file is None or file.exists():
            async with self._opened() as (_, target):
                found = await store_copy.check_target(target, self._classes, source=self.name)
        else:
            found = None
        documents = [{"collection": name, "documents": count} for name, count in sorted(counts.items())]
        state = "empty" if found is None else "an unfinished copy of this source"
        return {"source": self.name, "target": state, "collections": documents}

    def _refuse_missing_target(self) -> None:
        file = store_copy.local_file(self._target)
        if file is not None and not file.exists():
            raise ConfigError(f"there is no file {file}: check --to")

    @asynccontextmanager
    async def _source_alone(self) -> AsyncIterator[Store]:
        store = await open_store(self._source, self._classes, env=self._env)
        try:
            if steps := await store.diff():
                raise ConfigError(
                    f"the source is not as declared ({steps[0]}): run `holdfast schema migrate` on it first"
                )
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[Store, Store]]:
        classes: list[type[Document]] = [*self._classes, Copy]
        async with self._source_alone() as source:
            target = await open_store(self._target, classes, env=self._env)
            try:
                yield source, target
            finally:
                await target.close()


@contextmanager
def _progress() -> Iterator[Report]:
    with progress_bar() as bar:
        task = bar.add_task("", total=None)

        def report(now: store_copy.Progress) -> None:
            told = f"walk {now.walk}, {now.collection}: {now.differing:,} differ"
            bar.update(task, completed=now.seen, total=now.total, description=told)

        yield report


def _tell_plan(plan: dict[str, Any], *, as_json: bool) -> None:
    total = sum(one["documents"] for one in plan["collections"])
    if as_json:
        print_result(plan, "", as_json=True)
        return
    print_table(
        [one for one in plan["collections"] if one["documents"]],
        ("collection", "documents"),
        as_json=False,
        none="the source is empty",
    )
    typer.echo(
        f"{plural(total, 'document')} would be copied from {plan['source']}; the target is {plan['target']}"
    )


def _tell_verified(walked: WalkResult, *, as_json: bool) -> None:
    lines = [f"{one.kind}: {one.collection}/{one.id}" for one in walked.named]
    if walked.differing > len(walked.named):
        lines.append(f"and {walked.differing - len(walked.named):,} more")
    told = (
        f"missing {walked.missing:,}, changed {walked.changed:,}, extra {walked.extra:,}"
        if walked.differing
        else f"the same on both sides: {plural(walked.seen, 'document')}"
    )
    print_result(walked, "\n".join([*lines, told]), as_json=as_json)


def _tell_copied(copied: CopyResult, *, as_json: bool) -> None:
    lines = [
        f"walk {number}: {one.missing:,} missing, {one.changed:,} changed, {one.extra:,} extra"
        for number, one in enumerate(copied.walks, 1)
    ]
    lines.append(f"{copied.written:,} written, {copied.removed:,} removed")
    if copied.state == "finished":
        lines += [
            f"  {t.collection}: {plural(t.documents, 'document')}, {t.hash}"
            for t in copied.proof
            if t.documents
        ]
        lines.append("finished: every document is the same on both sides")
    elif copied.in_step:
        lines.append("in step; stop the writers now, then run this again with --final")
    else:
        lines.append("not in step yet: writers are faster; stop them, then run this again with --final")
    print_result(copied, "\n".join(lines), as_json=as_json)
