"""`holdfast hackernews`: read stories, hide them for a reader, run the worker, back-fill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from holdfast.clock import from_us
from holdfast.plural import plural
from holdfast.progress_bar import progress_bar
from holdfast.services.hackernews.backfill import BackfillProgress, Report
from holdfast.services.hackernews.domain.selection import StoriesQuery, domain_of
from holdfast.services.hackernews.domain.spans import PAGE_MAX
from holdfast.services.hackernews.models import STORY_ID_MAX, StoryRound
from holdfast.services.hackernews.operations import HackerNews

NAME = "hackernews"
commands = typer.Typer(
    help="Read stories, hide them for a reader, run the worker, back-fill.", no_args_is_help=True
)
hidden = typer.Typer(help="What a reader hid.", no_args_is_help=True)
worker = typer.Typer(help="Fetch stories now, and see the last rounds.", no_args_is_help=True)
cache = typer.Typer(help="The cached list of each timespan.", no_args_is_help=True)
commands.add_typer(hidden, name="hidden")
commands.add_typer(worker, name="worker")
commands.add_typer(cache, name="cache")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Reader = Annotated[str, typer.Argument(metavar="READER", help="A name on Hacker News.")]
StoryId = Annotated[int, typer.Argument(metavar="STORY", min=0, max=STORY_ID_MAX, help="A story's id.")]


@commands.command()
def stories(
    ctx: typer.Context,
    timespan: Annotated[str, typer.Option(help="Day, Week, Month, Year; anything else is All.")] = "Day",
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, help="At most so many.")] = 30,
    skip: Annotated[int, typer.Option(min=0, max=1_000_000, help="Leave out the first so many.")] = 0,
    q: Annotated[str, typer.Option("--search", metavar="WORDS", help="Words of the title.")] = "",
    domain: Annotated[str, typer.Option(metavar="HOST", help="Stories from this site.")] = "",
    by: Annotated[str, typer.Option(metavar="NAME", help="Stories by this author.")] = "",
    min_score: Annotated[int, typer.Option(min=0, max=1_000_000, help="At least this score.")] = 0,
    reader: Annotated[str, typer.Option(metavar="NAME", help="Without what this reader hid.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show the best stories of a timespan.

    \b
    Examples:
      holdfast hackernews stories --timespan Week --limit 10
      holdfast hackernews stories --search sqlite --min-score 100 --json | jq -r '.items[].url'
    """
    selection = StoriesQuery(
        timespan=timespan, limit=limit, skip=skip, q=q, domain=domain, by=by, min_score=min_score
    )
    page = ctx.obj.with_service(NAME, lambda operations: operations.stories(selection, reader=reader))
    rows = [
        {"id": one.id, "score": one.score, "comments": one.descendants, "by": one.by, "title": one.title,
         "site": domain_of(one.url), "time": from_us(one.time * 1_000), "url": one.url}
        for one in page.stories
    ]  # fmt: skip
    columns = ("id", "score", "comments", "title", "site", "by")
    ctx.obj.print_table(rows, columns, as_json=as_json, none="no stories")


@hidden.command("list")
def list_hidden(
    ctx: typer.Context,
    reader: Reader,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many.")] = 100,
    cursor: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Go on where the last page ended.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a reader hid, the latest first.

    \b
    Example:
      holdfast hackernews hidden list pg
    """

    async def read(operations: HackerNews) -> tuple[list[dict[str, Any]], str | None]:
        page = await operations.hidden(reader, limit=limit, cursor=cursor)
        known = await operations.find_stories([one.id for one in page.hidden])
        rows = [
            {"id": one.id, "hiddenAt": from_us(one.added_at * 1_000),
             "title": known[one.id].title if one.id in known else ""}
            for one in page.hidden
        ]  # fmt: skip
        return rows, page.cursor

    rows, after = ctx.obj.with_service(NAME, read)
    none = f"{reader} hid nothing"
    ctx.obj.print_table(rows, ("id", "hiddenAt", "title"), as_json=as_json, cursor=after, none=none)


@hidden.command("add")
def add_hidden(
    ctx: typer.Context,
    reader: Reader,
    story_ids: Annotated[
        list[int], typer.Argument(metavar="STORY...", min=0, max=STORY_ID_MAX, help="Ids of stories.")
    ],
    as_json: AsJson = False,
) -> None:
    """Hide stories for a reader.

    \b
    Example:
      holdfast hackernews hidden add pg 8863 8864
    """
    added = ctx.obj.operate_service(NAME, lambda operations, by: operations.hide(by, reader, story_ids))
    ctx.obj.print_result({"added": added}, f"{added} hidden that were not", as_json=as_json)


@hidden.command("remove")
def remove_hidden(ctx: typer.Context, reader: Reader, story_id: StoryId, as_json: AsJson = False) -> None:
    """Show a story to a reader again.

    \b
    Example:
      holdfast hackernews hidden remove pg 8863
    """
    removed = ctx.obj.operate_service(NAME, lambda operations, by: operations.unhide(by, reader, story_id))
    text = "shown again" if removed else "it was not hidden"
    ctx.obj.print_result({"removed": removed}, text, as_json=as_json)


@worker.command("run")
def run_worker(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Fetch new stories and refresh stale ones now; exit 1 while another process does.

    \b
    Example:
      holdfast hackernews worker run
    """
    found: StoryRound = ctx.obj.operate_service(NAME, lambda operations, by: operations.run_worker(by))
    refreshed = sum(found.refreshed.values())
    text = (
        f"{found.new} new, {refreshed} refreshed, {found.gone} gone, {found.other} no stories, "
        f"{found.failed} failed"
        f" ({plural(found.reads, 'read')}, {plural(found.writes, 'write')}, {found.ms} ms)"
    )
    if found.gap is not None:
        text += f"\nstories from {found.gap.first_id} to {found.gap.last_id} may be missing: back-fill them"
    ctx.obj.print_result(found, text, as_json=as_json)


@worker.command("rounds")
def list_rounds(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the last rounds of the worker, newest first.

    \b
    Example:
      holdfast hackernews worker rounds --limit 5
    """
    rounds = ctx.obj.with_service(NAME, lambda operations: operations.rounds(limit=limit))
    columns = ("startedAt", "status", "done", "total", "new", "refreshed", "failed", "ms", "error")
    ctx.obj.print_table(rounds, columns, as_json=as_json, none="no rounds yet")


@commands.command()
def backfill(
    ctx: typer.Context,
    first_id: Annotated[int, typer.Option("--from", min=1, max=STORY_ID_MAX, metavar="ID", help="First id.")],
    last_id: Annotated[
        int | None,
        typer.Option("--to", min=1, max=STORY_ID_MAX, metavar="ID", help="Last id; without it, the newest."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch the stories of a range of ids that are not stored; run it again to go on after an interruption.

    \b
    Example:
      holdfast hackernews backfill --from 8000000 --to 8010000
    """

    with _progress() as report:

        async def run(operations: HackerNews, by: Any) -> BackfillProgress:
            last = last_id or await operations.newest_id()
            return await operations.backfill(by, first_id=first_id, last_id=last, report=report)

        found: BackfillProgress = ctx.obj.operate_service(NAME, run)
    text = (
        f"{found.stored} stored, {found.present} stored before, {found.other} no stories, "
        f"{len(found.failed)} failed"
    )
    ctx.obj.print_result(found, text, as_json=as_json)
    if found.failed:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Report]:
    with progress_bar() as bar:
        task = bar.add_task("", total=None)

        def report(now: BackfillProgress) -> None:
            said = f"{'going on, ' if now.resumed else ''}{now.stored:,} stored"
            bar.update(task, completed=now.done, total=now.total, description=said)

        yield report


@cache.command("clear")
def clear_cache(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Forget the cached lists, in all processes: the next reader has them computed.

    \b
    Example:
      holdfast hackernews cache clear
    """
    ctx.obj.operate_service(NAME, lambda operations, by: operations.clear_cache(by))
    ctx.obj.print_result({"cleared": True}, "cleared", as_json=as_json)


@cache.command("show")
def show_cache(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show how many stories are cached for each timespan, and since when.

    \b
    Example:
      holdfast hackernews cache show
    """
    rows = ctx.obj.with_service(NAME, lambda operations: operations.spans())
    ctx.obj.print_table(rows, ("timespan", "stories", "cachedAt"), as_json=as_json)
