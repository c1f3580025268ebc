"""Commands on the simulated Hacker News."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.simulators.hackernews.state import HackerNewsState
from holdfast.simulators.server import Command


class AddStories(Command[HackerNewsState], frozen=True):
    """Add stories, evenly over the last days: {count, days}."""

    count: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    days: Annotated[float, Meta(gt=0, le=10_000)] = 400.0

    def run(self, state: HackerNewsState) -> object:
        ids = state.add_stories(self.count, days=self.days)
        return {"first": ids[0], "last": ids[-1]}


class PostItem(Command[HackerNewsState], frozen=True):
    """Post one item: {id, type, title, url, by, score, ageS}; what is left out is made up."""

    id: int = 0
    type: Literal["story", "job", "poll", "comment", "pollopt"] = "story"
    title: str = ""
    url: str | None = None
    by: str = ""
    score: int = 1
    age_s: int = 0

    def run(self, state: HackerNewsState) -> object:
        given: dict[str, Any] = {"type": self.type, "score": self.score}
        given |= {name: value for name in ("id", "title", "by") if (value := getattr(self, name))}
        if self.url is not None:
            given["url"] = self.url
        return state.post(age_s=self.age_s, **given).answer()


class ChangeItem(Command[HackerNewsState], frozen=True):
    """Change an item: {id, score, descendants, title, dead, deleted, delayS}; null leaves as it is."""

    id: int
    score: int | None = None
    descendants: int | None = None
    title: str | None = None
    dead: bool | None = None
    deleted: bool | None = None
    delay_s: float | None = None

    def run(self, state: HackerNewsState) -> object:
        item = state.items[self.id]
        for name, value in msgspec.structs.asdict(self).items():
            if value is not None:
                setattr(item, name, value)
        state.changed.append(item.id)
        return item.answer()


class ShowItem(Command[HackerNewsState], frozen=True):
    """An item as the API gives it: {id}."""

    id: int

    def run(self, state: HackerNewsState) -> object:
        return state.items[self.id].answer()


class Age(Command[HackerNewsState], frozen=True):
    """Let people vote and comment as they would in some hours: {hours}."""

    hours: Annotated[float, Meta(gt=0, le=72)] = 1.0

    def run(self, state: HackerNewsState) -> object:
        return {"stories": state.age(self.hours)}


class Outage(Command[HackerNewsState], frozen=True):
    """Answer everything with 503, or no more; answer slowly: {on, delayS}."""

    on: bool = True
    delay_s: Annotated[float, Meta(ge=0, le=60)] = 0.0

    def run(self, state: HackerNewsState) -> object:
        state.down, state.delay_s = self.on, self.delay_s
        return self


class AddAccount(Command[HackerNewsState], frozen=True):
    """Let an account sign in: {acct, pw}."""

    acct: str
    pw: str

    def run(self, state: HackerNewsState) -> object:
        state.passwords[self.acct] = self.pw
        return {"acct": self.acct}


class Limits(Command[HackerNewsState], frozen=True):
    """Ask for validation after so many sign-ins of an address; 0 for never: {signIns}."""

    sign_ins: Annotated[int, Meta(ge=0)] = 0

    def run(self, state: HackerNewsState) -> object:
        state.attempts_max = self.sign_ins
        state.attempts.clear()
        return self


COMMANDS: dict[str, type[Command[HackerNewsState]]] = {
    "stories": AddStories,
    "post": PostItem,
    "change": ChangeItem,
    "item": ShowItem,
    "age": Age,
    "outage": Outage,
    "account": AddAccount,
    "limits": Limits,
}
