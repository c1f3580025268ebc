"""Search, filters and mutes, ranking and merging: pure decisions."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from holdfast.providers.hackernews import Item
from holdfast.services.hackernews.domain import ranking
from holdfast.services.hackernews.domain.items import judge, ranked_story, safe_url
from holdfast.services.hackernews.domain.ranking import RankedStory, merge, rank
from holdfast.services.hackernews.domain.selection import StoriesQuery, domain_of, filter_stories
from tests.services.hackernews.harness import Harness, a_story, store_stories


def _story(story_id: int, **fields: Any) -> RankedStory:
    usual: dict[str, Any] = {
        "by": "ada_l",
        "descendants": 0,
        "score": 1,
        "time": story_id,
        "title": "A story",
    }
    return RankedStory(id=story_id, **(usual | fields))


STORIES = [
    _story(1, title="SQLite in Rust", url="https://www.example.com/a", score=300),
    _story(2, title="Crypto is back", url="https://blog.example.com/b", score=200, by="Hopper"),
    _story(3, title="Ask HN: rust?", score=100),
    _story(4, title="İstanbul 🌊", url="http://notexample.com/", score=50),
]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, [1, 2, 3, 4]),
        ({"q": "rust"}, [1, 3]),
        ({"q": "RUST sqlite"}, [1]),
        ({"q": "  "}, [1, 2, 3, 4]),
        ({"q": "🌊"}, [4]),
        ({"domain": "example.com"}, [1, 2]),
        ({"domain": "www.EXAMPLE.com"}, [1, 2]),
        ({"domain": "blog.example.com"}, [2]),
        ({"by": "hopper"}, [2]),
        ({"min_score": 100}, [1, 2, 3]),
        ({"mute_words": ("crypto", " ")}, [1, 3, 4]),
        ({"mute_domains": ("example.com",)}, [3, 4]),
        ({"q": "rust", "min_score": 200, "mute_domains": ("notexample.com",)}, [1]),
    ],
)
def test_search_filters_and_mutes(words: dict[str, Any], expected: list[int]) -> None:
    assert [story.id for story in filter_stories(STORIES, StoriesQuery(**words))] == expected


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("https://www.example.com:8080/a", "example.com"), ("http://EXAMPLE.com", "example.com"), ("", ""),
        ("javascript:alert(1)", ""), ("http://[::1", ""), ("ftp://example.com", ""),
    ],
)  # fmt: skip
def test_the_domain_of_an_address(url: str, domain: str) -> None:
    assert domain_of(url) == domain


def test_a_request_outside_the_limits_is_refused() -> None:
    for wrong in ({"limit": 0}, {"limit": 501}, {"skip": -1}, {"min_score": -1}, {"q": "x" * 201}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, StoriesQuery)


def test_lists_are_ordered_by_score_then_newest_id_and_merging_is_as_ranking_everything() -> None:
    dice = random.Random(2)
    for _ in range(200):
        old = {n: _story(n, score=dice.randrange(4), time=dice.randrange(100)) for n in range(12)}
        new = {n: _story(n, score=dice.randrange(4), time=dice.randrange(100)) for n in range(8, 20)}
        gone, cutoff = set(dice.sample(range(20), 3)), dice.randrange(50)
        merged = merge(old.values(), new.values(), cutoff_ms=cutoff, removed=gone)
        left = [s for s in {**old, **new}.values() if s.time > cutoff and s.id not in gone]
        assert merged == sorted(left, key=lambda story: (story.score, story.id), reverse=True)


def test_a_list_keeps_its_best_and_fits_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [s.id for s in rank(_story(n, score=n) for n in range(3_000))] == list(range(2_999, 999, -1))
    monkeypatch.setattr(ranking, "LIST_BYTES_MAX", 1_000)
    assert len(rank(_story(n, url="https://example.com/" + "x" * 100) for n in range(50))) == 4


def test_items_become_stories_with_plain_text_and_safe_links() -> None:
    item = Item(
        id=1, type="story", by="a", time=5, title="R&amp;D &lt;b&gt;", url="javascript:alert(1)", score=-3
    )
    story = ranked_story(item)
    assert (story.title, story.url, story.score, story.time) == ("R&D <b>", "", 0, 5_000)
    assert safe_url(" HTTPS://example.com/ ") == "HTTPS://example.com/"
    assert safe_url("https://example.com/" + "x" * 2_048) == ""
    assert judge(Item(id=1, type="story", time=5)) == "other"
    assert judge(None) == "missing"


async def test_a_page_is_cut_after_filters_and_continues_by_skip(quick_harness: Harness) -> None:
    news, now = quick_harness, quick_harness.clock.now()
    await store_stories(news.runtime.store, [
        a_story(n, score=n, at=now, title="Rust" if n % 2 else "Lisp") for n in range(1, 31)
    ])  # fmt: skip
    first = await news.operations.stories(StoriesQuery(timespan="Day", q="rust", limit=10))
    assert [story.id for story in first.stories] == list(range(29, 10, -2))
    assert first.next_skip == 10
    rest = await news.operations.stories(StoriesQuery(timespan="Day", q="rust", limit=10, skip=10))
    assert ([story.id for story in rest.stories], rest.next_skip) == (list(range(9, 0, -2)), None)
    # A page that nobody's own wishes shape is remembered as long as its list is.
    plain = await news.operations.stories(StoriesQuery(timespan="Day", limit=10))
    assert await news.operations.stories(StoriesQuery(timespan="Day", limit=10)) is plain
    await news.operations.clear_cache(news.by)
    assert await news.operations.stories(StoriesQuery(timespan="Day", limit=10)) is not plain
