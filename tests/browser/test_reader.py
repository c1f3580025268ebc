"""The reader of hackernews in a real browser: hiding, keyboard, search, mutes, signing in, no script."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, Route, expect

from holdfast.clock import SystemClock
from holdfast.simulators.hackernews import PostItem
from tests.browser.axe import serious_findings
from tests.browser.look import LOOKS, Watched, sideways
from tests.services.hackernews.reading import ACCOUNT, Site, reading

pytestmark = pytest.mark.asyncio(loop_scope="session")
PLENTY = {"caller_burst": 100_000, "address_burst": 100_000}
DARK = {"390-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}}


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    home = tmp_path_factory.mktemp("reader")
    async with reading(home, SystemClock(), stories=150, limits=PLENTY) as made:
        made.news.hackernews.run(PostItem(title="Young and <b>bold</b>", score=9_000, age_s=60))
        await made.fetch()
        yield made


def titles(page: Page) -> Locator:
    return page.locator("#stories .story:visible .title")


async def shown(page: Page, count: int) -> list[str]:
    return (await titles(page).all_inner_texts())[:count]


@contextlib.asynccontextmanager
async def opened(browser: Browser, **look: Any) -> AsyncIterator[Page]:
    """A page of a browser that never was here, which must stay free of errors."""
    context = await browser.new_context(**look)
    page = await context.new_page()
    watched = Watched(page)
    yield page
    assert watched.faults == []
    await context.close()


async def sign_in(page: Page, site: Site) -> None:
    await page.goto(f"{site.address}/hackernews/login")
    await page.get_by_label("Hacker News name").fill(ACCOUNT["acct"])
    await page.get_by_label("Password").fill(ACCOUNT["pw"])
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_text(ACCOUNT["acct"], exact=True)).to_be_visible()


async def test_spans_pages_search_and_filters(page: Page, site: Site) -> None:
    await page.goto(f"{site.address}/hackernews/")
    await expect(page.get_by_role("link", name="Today")).to_have_attribute("aria-current", "page")
    assert (await shown(page, 1)) == ["Young and <b>bold</b>"]
    await page.get_by_role("link", name="Week").click()
    await expect(titles(page)).to_have_count(40)
    await page.get_by_role("link", name="More stories").click()
    await expect(titles(page)).to_have_count(80)
    numbers = [int(one.replace(",", "")) for one in await page.locator(".score b").all_inner_texts()]
    assert numbers == sorted(numbers, reverse=True)
    await page.keyboard.press("/")
    await page.keyboard.type("young")
    await page.keyboard.press("Enter")
    await expect(titles(page)).to_have_count(1)
    await page.locator(".chip", has_text="young").click()
    await page.get_by_text("Filters", exact=True).click()
    await page.get_by_label("Points").select_option("1,000+")
    await page.get_by_label("Domain").fill("nowhere.example")
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("heading", name="No story matches")).to_be_visible()
    await page.locator("a.chip", has_text="nowhere").click()
    assert await titles(page).count() >= 1
    domain = await page.locator(".domain").first.inner_text()
    await page.locator(".domain").first.click()
    await expect(page.locator("a.chip", has_text=domain)).to_be_visible()
    assert set(await page.locator(".domain").all_inner_texts()) == {domain}


async def test_a_hidden_story_is_gone_for_good_and_can_be_brought_back(page: Page, site: Site) -> None:
    await page.goto(f"{site.address}/hackernews/?timespan=Week")
    first, second, third = await shown(page, 3)
    await page.get_by_role("button", name=f"Hide: {first}").first.click()
    await expect(titles(page).first).to_have_text(second)
    await page.get_by_role("button", name="Undo").click()
    await expect(titles(page).first).to_have_text(first)
    for key in "jjhu":
        await page.keyboard.press(key)
    assert await shown(page, 3) == [first, second, third]
    for key in "kh":
        await page.keyboard.press(key)
    await expect(titles(page).nth(1)).to_have_text(third)
    async with page.expect_popup() as popup:
        await page.keyboard.press("o")
    assert (await popup.value).url != page.url
    await (await popup.value).close()
    await page.reload()
    assert await shown(page, 2) == [first, third]
    await page.get_by_role("link", name="Hidden", exact=True).click()
    await expect(page.locator("#hidden-stories .title")).to_have_text([second])
    await page.get_by_role("button", name="Show again").click()
    await expect(page.get_by_role("heading", name="Nothing hidden")).to_be_visible()
    await page.goto(f"{site.address}/hackernews/?timespan=Week")
    assert await shown(page, 3) == [first, second, third]


async def test_hidden_stories_never_flash(browser: Browser, site: Site) -> None:
    async with opened(browser) as page:
        await page.goto(f"{site.address}/hackernews/?timespan=Week")
        ids = await page.locator(".story").evaluate_all("all => all.slice(0, 3).map(one => one.dataset.id)")
        for _ in ids:
            await page.locator(".story:visible").first.get_by_role("button").click()
        # Looks at every frame that is painted.
        await page.add_init_script(f"""
            window.flashed = [];
            let frames = 0;
            const look = () => {{
              if (document.readyState === "complete") frames += 1;
              for (const id of {ids}) {{
                const story = document.querySelector(`#stories [data-id="${{id}}"]`);
                if (story?.checkVisibility()) flashed.push(id);
              }}
              if (frames > 3) document.documentElement.dataset.looked = "1";
              requestAnimationFrame(look);
            }};
            requestAnimationFrame(look);
        """)
        await page.reload()
        await expect(page.locator("html")).to_have_attribute("data-looked", "1")
        assert await page.evaluate("window.flashed") == []
        assert await page.locator(".story").count() == 40


async def test_what_a_failing_server_refuses_is_taken_back(browser: Browser, site: Site) -> None:
    async with opened(browser) as page:
        await sign_in(page, site)
        await page.goto(f"{site.address}/hackernews/?timespan=Week")
        before = await shown(page, 3)

        async def fail(route: Route) -> None:
            await route.fulfill(status=503, body="{}")

        await page.route("**/api/v1/hidden**", fail)
        await page.locator(".story:visible").first.get_by_role("button").click()
        await expect(page.get_by_role("status")).to_contain_text("Not hidden: the server answered 503")
        assert await shown(page, 3) == before
        await page.unroute("**/api/v1/hidden**")
        async with page.expect_response("**/api/v1/hidden") as hid:
            await page.get_by_role("button", name="Try again").click()
        assert (await hid.value).status == 200
        assert await shown(page, 2) == before[1:]
        await page.route("**/api/v1/hidden/**", lambda route: route.abort())
        await page.keyboard.press("u")
        await expect(page.get_by_role("status")).to_contain_text("Still hidden: the server can't be reached")
        assert await shown(page, 2) == before[1:]


async def test_hides_made_before_signing_in_come_along_and_pages_stay_full(
    browser: Browser, site: Site
) -> None:
    async with opened(browser) as phone, opened(browser) as laptop:
        await phone.goto(f"{site.address}/hackernews/?timespan=Week")
        for _ in range(2):
            await phone.locator(".story:visible").first.get_by_role("button").click()
        left = await shown(phone, 3)
        async with phone.expect_response("**/api/v1/hidden") as merged:
            await sign_in(phone, site)
        assert (await merged.value).status == 200
        await sign_in(laptop, site)
        await laptop.goto(f"{site.address}/hackernews/?timespan=Week")
        assert await shown(laptop, 3) == left
        await expect(titles(laptop)).to_have_count(40)
        # What comes next begins after what is left, not after what was there.
        ids = await laptop.locator(".story").evaluate_all("all => all.map(one => one.dataset.id)")
        await laptop.locator(".story:visible").first.get_by_role("button").click()
        await laptop.get_by_role("link", name="More stories").click()
        await expect(titles(laptop)).to_have_count(79)
        everything = await laptop.locator(".story").evaluate_all("all => all.map(one => one.dataset.id)")
        assert (everything[:40], len(set(everything))) == (ids, 80)
        await laptop.get_by_role("button", name="Sign out").click()
        await expect(laptop.get_by_role("link", name="Sign in")).to_be_visible()


async def test_a_link_from_another_site_finds_the_reader_signed_in(browser: Browser, site: Site) -> None:
    async with opened(browser) as page:
        await sign_in(page, site)
        link = f'<!doctype html><a href="{site.address}/hackernews/?timespan=Week">news</a>'
        await page.route(
            "http://other.example/", lambda route: route.fulfill(body=link, content_type="text/html")
        )
        for _ in range(2):
            await page.goto("http://other.example/")
            await page.get_by_role("link", name="news").click()
            await expect(page.get_by_role("button", name="Sign out")).to_be_visible()
            await expect(page).to_have_url(f"{site.address}/hackernews/?timespan=Week")


async def test_muted_words_and_domains_are_left_out(page: Page, site: Site) -> None:
    await page.goto(f"{site.address}/hackernews/mutes")
    await page.get_by_label("Words").fill("Young AND")
    await page.get_by_label("Domains").fill("https://www.example.org/x\nblog.example.com")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved.")).to_be_visible()
    await expect(page.get_by_label("Domains")).to_have_value("example.org\nblog.example.com")
    await page.goto(f"{site.address}/hackernews/?timespan=Week")
    await expect(titles(page)).to_have_count(40)
    assert "Young and <b>bold</b>" not in await shown(page, 40)
    domains = set(await page.locator(".domain").all_inner_texts())
    assert domains
    assert not domains & {"example.org", "blog.example.com"}


async def test_what_is_new_since_the_last_visit_is_marked(page: Page, site: Site) -> None:
    await page.goto(f"{site.address}/hackernews/")
    await expect(page.locator("#news")).to_be_hidden()
    an_hour_ago = "JSON.stringify({last: null, seen: Date.now() - 36e5})"
    await page.evaluate(f"localStorage.setItem('unseen/hackernews:visit', {an_hour_ago})")
    for _ in range(2):
        await page.reload()
        await expect(page.locator("#news")).to_contain_text("since your last visit 1 h ago")
    await expect(page.locator(".story.new .title").first).to_have_text("Young and <b>bold</b>")
    await page.get_by_role("button", name="Show only new").click()
    assert await titles(page).count() == await page.locator(".story.new").count()


async def test_it_works_without_script(browser: Browser, site: Site) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{site.address}/hackernews/?timespan=Week")
    await page.locator(".story").first.get_by_role("button").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await sign_in(page, site)
    await page.goto(f"{site.address}/hackernews/?timespan=Week")
    before = await shown(page, 2)
    await page.locator(".story").first.get_by_role("button").click()
    await expect(page).to_have_url(re.compile(r"timespan=Week"))
    assert (await shown(page, 1)) == before[1:]
    await page.get_by_role("link", name="More stories").click()
    await expect(page.get_by_role("link", name="← Previous")).to_be_visible()
    await page.goto(f"{site.address}/hackernews/hidden")
    await page.get_by_role("button", name=f"Show again: {before[0]}").first.click()
    await page.goto(f"{site.address}/hackernews/?timespan=Week")
    assert await shown(page, 2) == before
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("link", name="Sign in")).to_be_visible()
    await context.close()


@pytest.mark.parametrize("look", ["1280-light", "390-dark"])
async def test_it_is_accessible_and_fits(
    browser: Browser, site: Site, look: str, request: pytest.FixtureRequest
) -> None:
    async with opened(browser, **(LOOKS | DARK)[look]) as page:
        for path in (
            "",
            "?timespan=Week&domain=example.org",
            "?q=nothing-at-all",
            "hidden",
            "login",
            "mutes",
        ):
            await page.goto(f"{site.address}/hackernews/{path}")
            await page.wait_for_load_state("networkidle")
            assert await sideways(page) <= 0, path
            assert await serious_findings(page, request) == [], path


async def test_it_is_dark_before_the_first_paint_and_small(browser: Browser, site: Site) -> None:
    context = await browser.new_context(color_scheme="dark", java_script_enabled=False)
    page = await context.new_page()
    sizes: list[int] = []

    async def count(response: Any) -> None:
        if not response.url.endswith(".svg"):
            sizes.append(len(await response.body()))

    page.on("response", count)
    await page.goto(f"{site.address}/hackernews/")
    ground = await page.locator("body").evaluate("one => getComputedStyle(one).backgroundColor")
    assert ground == "rgb(21, 22, 26)"
    await context.close()
    async with opened(browser) as scripted:
        scripted.on("response", count)
        sizes.clear()
        await scripted.goto(f"{site.address}/hackernews/")
        await scripted.wait_for_load_state("networkidle")
        assert len(sizes) >= 5
        assert sum(sizes) < 60_000, "without compression even"
