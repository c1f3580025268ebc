"""State of the simulated Hacker News: items with votes, the lists they make up, accounts."""

from __future__ import annotations

import random
from collections import deque
from typing import Any, Final

import msgspec

from holdfast.clock import Clock

NEW_MAX: Final = 500
TOP_MAX: Final = 500
BEST_MAX: Final = 200
UPDATED_MAX: Final = 100
FIRST_ID: Final = 40_000_000
_HOUR_S: Final = 3_600
_SUBJECTS: Final = (
    "SQLite", "PostgreSQL", "Rust", "Python", "a compiler", "WebAssembly", "an old mainframe", "Linux",
    "type systems", "a tiny database", "the browser", "cryptography", "a text editor", "Lisp", "keyboards",
    "garbage collection", "queues", "a home server", "the speed of light", "maps", "a hash table", "Unicode",
)  # fmt: skip
_FORMS: Final = (
    "Show HN: I built {} from scratch", "How {} works inside", "Ask HN: What do you use {} for?",
    "{} considered harmful", "The unreasonable effectiveness of {}", "A visual guide to {}",
    "What I learned from ten years of {}", "Debugging {} in production", "{}, but faster",
    "Why we moved to {}", "The history of {}", "An introduction to {} for the impatient",
)  # fmt: skip
_HOSTS: Final = (
    "blog.example.com", "www.example.org", "research.example.edu", "news.example.net", "lists.example.io",
    "essays.example.dev", "lab.example.science", "code.example.sh",
)  # fmt: skip
_AUTHORS: Final = (
    "ada_l",
    "turing",
    "hopper",
    "backus",
    "mccarthy",
    "dijkstra",
    "knuth",
    "liskov",
    "hamilton",
    "lamport",
)


class SimulatedItem(msgspec.Struct, kw_only=True):
    """An item; `talent` is what share of the crowd's votes it attracts, and no field of the API."""

    id: int
    type: str = "story"
    by: str = ""
    time: int
    title: str = ""
    url: str = ""
    score: int = 1
    descendants: int = 0
    kids: list[int] = []
    deleted: bool = False
    dead: bool = False
    delay_s: float = 0.0
    talent: float = 1.0

    def answer(self) -> dict[str, Any]:
        """The item as the API gives it; fields that are empty are left out."""
        if self.deleted:
            return {"id": self.id, "type": self.type, "time": self.time, "deleted": True}
        shown = {name: value for name, value in msgspec.structs.asdict(self).items() if value}
        for name in ("delay_s", "talent"):
            shown.pop(name, None)
        if self.type in ("story", "poll"):
            shown["descendants"] = self.descendants
        return shown


class HackerNewsState:
    """All items by id, and the accounts that can sign in."""

    def __init__(self, clock: Clock, *, seed: int = 1) -> None:
        self.clock, self._seed = clock, seed
        self.clear()

    def clear(self) -> None:
        self.items: dict[int, SimulatedItem] = {}
        self.changed: deque[int] = deque(maxlen=UPDATED_MAX)
        self.passwords: dict[str, str] = {}
        self.attempts: dict[str, int] = {}
        self.attempts_max, self.down, self.delay_s = 0, False, 0.0
        self._dice, self._last_id = random.Random(self._seed), FIRST_ID

    @property
    def now_s(self) -> int:
        return self.clock.now_us() // 1_000_000

    @property
    def max_id(self) -> int:
        return max(self._last_id, max(self.items, default=0))

    def post(self, *, age_s: int = 0, **fields: Any) -> SimulatedItem:
        """Add an item under the next id; a few ids between two stories go to comments, as on the real one."""
        if "id" not in fields:
            self._last_id += self._dice.randint(1, 4)
            fields["id"] = self._last_id
        host, author = self._dice.choice(_HOSTS), self._dice.choice(_AUTHORS)
        title = self._dice.choice(_FORMS).format(self._dice.choice(_SUBJECTS))
        usual: dict[str, Any] = {
            "by": author, "time": self.now_s - age_s, "title": title[0].upper() + title[1:],
            "url": "" if title.startswith("Ask") else f"https://{host}/{fields['id']}",
            "talent": self._dice.paretovariate(1.2),
        }  # fmt: skip
        item = self.items[fields["id"]] = SimulatedItem(**(usual | fields))
        self._last_id = max(self._last_id, item.id)
        self.changed.append(item.id)
        return item

    def add_stories(self, count: int, *, days: float) -> list[int]:
        """Add stories evenly over the last days, oldest first, with the votes of their age."""
        step_s = days * 86_400 / count
        added = [self.post(age_s=round(days * 86_400 - n * step_s)) for n in range(count)]
        for item in added:
            self._vote(item, hours=24.0, crowd=12.0)
        return [item.id for item in added]

    def age(self, hours: float, *, crowd: float = 2.0) -> int:
        """Let people vote and comment for a while, on young stories more than on old ones."""
        live = [one for one in self.items.values() if one.type == "story" and not (one.dead or one.deleted)]
        young = [one for one in live if self.now_s - one.time < 72 * _HOUR_S]
        for item in young:
            self._vote(item, hours=hours, crowd=crowd)
        return len(young)

    def _vote(self, item: SimulatedItem, *, hours: float, crowd: float) -> None:
        age_h = max(0.0, (self.now_s - item.time) / _HOUR_S)
        share = min(hours, age_h + 1.0) / (1.0 + (0.0 if hours >= 24 else age_h))
        votes = round(item.talent * crowd * share * self._dice.random())
        if votes:
            item.score = min(5_000, item.score + votes)
            item.descendants += self._dice.randint(0, votes)
            self.changed.append(item.id)

    def listed(self, name: str) -> list[int]:
        """The ids of a list, in its order."""
        live = [one for one in self.items.values() if not (one.dead or one.deleted)]
        stories = [one for one in live if one.type in ("story", "poll")]
        if name == "newstories":
            return sorted((one.id for one in stories if one.type == "story"), reverse=True)[:NEW_MAX]
        if name == "beststories":
            recent = [one for one in stories if self.now_s - one.time < 7 * 24 * _HOUR_S]
            return [one.id for one in sorted(recent, key=lambda one: (-one.score, -one.id))[:BEST_MAX]]
        ranked = sorted([*stories, *(one for one in live if one.type == "job")], key=self._heat)
        return [one.id for one in ranked[:TOP_MAX]]

    def _heat(self, item: SimulatedItem) -> tuple[float, int]:
        age_h = (self.now_s - item.time) / _HOUR_S
        return -max(0.0, item.score - 1) / (max(0.0, age_h) + 2) ** 1.8, -item.id

    def sign_in(self, account: str, password: str, address: str) -> str:
        """Judge a sign-in: `ok`, `bad`, or `throttled` for an address that tried too often."""
        self.attempts[address] = self.attempts.get(address, 0) + 1
        if self.attempts_max and self.attempts[address] > self.attempts_max:
            return "throttled"
        return "ok" if password and self.passwords.get(account) == password else "bad"
