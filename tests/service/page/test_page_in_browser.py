"""The page of a server in Chromium, as people use it."""

import json
import re
import shutil
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from lengths import long_but
from service.running import running

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.xdist_group("page")]

EVENTS, SUBSCRIPTIONS = "/filters/default/events", "/filters/default/subscriptions"
EXPECTED = "Failed to load resource"  # of an answer that says no: what the page shows is looked at
expect.set_options(timeout=60_000)


LEAN = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-software-rasterizer"]


class Visitor:
    """Opens pages in one tab and notes what goes wrong: `errors`, and the `hosts` that were asked.

    Another tab, or a page of another site, would be another process of Chromium.
    """

    def __init__(self, browser):
        context = browser.new_context()
        context.set_default_timeout(60_000)
        self._page = page = context.new_page()
        self._size = page.viewport_size
        self.errors, self.hosts, self.host = [], set(), None
        page.on("console", lambda one: self._note(one.text) if one.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self._note(str(error)))
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.on("dialog", lambda dialog: self._note(f"a dialog: {dialog.message}"))

    def __call__(self, server, width=None, **media):
        """The page of a server, in a window of some width, with some features of media."""
        self.host = f"127.0.0.1:{server.port}"
        self._page.set_viewport_size(self._size if width is None else {"width": width, "height": 800})
        self._page.emulate_media(**dict.fromkeys(("color_scheme", "reduced_motion"), "null") | media)
        self._page.goto(f"http://{self.host}/")
        return self._page

    def _note(self, error):
        self.errors.append(error)

    def leave(self):
        """Leave the page for an empty one of the same site."""
        self._page.route("**/*", lambda route: route.fulfill(body="", content_type="text/html"))
        self._page.goto("http://127.0.0.1/")
        self._page.unroute_all()
        found = self.errors, self.hosts - {"127.0.0.1"}
        self.errors, self.hosts = [], set()
        return found


@pytest.fixture(scope="module")
def visitor():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=LEAN)
        yield Visitor(browser)
        browser.close()


@pytest.fixture
def visit(visitor):
    """Opens the page of a server; at the end, nothing went wrong and all requests were for that server."""
    yield visitor
    errors, hosts = visitor.leave()
    assert [one for one in errors if not one.startswith(EXPECTED)] == []
    assert hosts - {""} == {visitor.host}


def subscribe(server, where, user="ann"):
    made = server.ask("POST", SUBSCRIPTIONS, {"where": where}, user=user)
    assert made.status == 201, made.body
    return made.body["subscription"]


def publish(server, *events):
    lines = "\n".join(map(json.dumps, events)).encode()
    assert server.ask("POST", EVENTS, lines, kind="application/x-ndjson", user="carl").status == 202
    server.settle()


def ask_for(page, event):
    """Try an event."""
    page.get_by_label("Event, as JSON").fill(event if isinstance(event, str) else json.dumps(event))
    page.get_by_role("button", name="What matches?").click()


def cells(page, table):
    """The rows of a table, as texts."""
    return [row.locator("th, td").all_inner_texts() for row in page.locator(f"#{table} tr").all()]


# The numbers


def test_the_numbers_are_those_of_published_events(server, visit):
    subscribe(server, "price < 10")
    publish(server, *[{"price": price} for price in range(30)])
    page = visit(server)
    expect(page.locator("#rate-all")).to_have_text("30 since start")
    expect(page.locator("#mean-all")).to_have_text(re.compile(r"since start [\d.]+ (µs|ms|s)"))
    expect(page.locator("#p99-all")).to_have_text(re.compile(r"since start [\d.]+ (µs|ms|s)"))
    expect(page.locator("#queue")).to_have_text("0")
    (user, waiting, age, connected) = cells(page, "slowest")[0]
    assert (user, waiting, connected) == ("ann", "10", "no")
    assert age.endswith("s")
    assert cells(page, "plans")[0][:3] == ["default", "16\u201331", "1"]
    assert sum(int(row[1]) for row in cells(page, "estimates")) == 30


@pytest.mark.long
def test_events_from_before_the_page_was_opened_are_told(server, visit):
    publish(server, *[{"price": price} for price in range(30)])
    page = visit(server)
    expect(page.locator("#rate-all")).to_have_text("30 since start")
    for chart in ("response", "rate"):
        expect(page.locator(f"#{chart}-text")).to_have_text(
            "No events in the time shown, 30 since the server started."
        )


def test_what_happens_now_is_shown_and_drawn(server, visit):
    page = visit(server)
    expect(page.locator("#held")).to_have_text("0")
    expect(page.locator("#response-text")).to_have_text("No events yet.")
    subscribe(server, "price < 10")
    publish(server, *[{"price": price} for price in range(30)])
    expect(page.locator("#rate")).to_have_text(re.compile(r"[1-9].*/s"))
    expect(page.locator("#mean")).to_have_text(re.compile(r"[\d.]+(µs|ms|s)"))
    expect(page.locator("#response-chart path.two")).to_have_count(1)
    expect(page.locator("#response-text")).to_have_text(re.compile("Mean .* to .*, p99 .* to "))
    assert cells(page, "filters")[0][3] == "0.333"
    assert [row[0] for row in cells(page, "stages")][-2:] == ["match", "deliver"]


@pytest.mark.long
def test_a_quantile_lies_between_the_bounds_of_its_bucket(server, visit):
    page = visit(server)
    for counts, share, expected in (
        ([0, 4, 0, 0], 0.5, 1.5),  # halfway through the bucket from 1 to 2
        ([2, 2, 0, 0], 0.5, 1),
        ([0, 0, 0, 3], 0.99, 4),  # beyond the last bound it is not known how far
        ([0, 0, 0, 0], 0.99, None),
    ):
        found = page.evaluate(
            "([counts, share]) => quantile({counts, bounds: [1, 2, 4]}, share)", [counts, share]
        )
        assert found == expected, counts


def test_a_server_that_goes_away_is_told_and_waited_for(tmp_path, visit):
    with running(tmp_path) as server:
        page = visit(server)
        expect(page.get_by_role("status").first).to_have_text("Live")
    expect(page.locator("#state")).to_have_text(re.compile(r"No answer since \d"))
    with running(tmp_path, port=server.port) as server:
        expect(page.locator("#state")).to_have_text("Live")
        publish(server, {"price": 1})
        expect(page.locator("#rate-all")).to_have_text("1 since start")


# Try an event


def test_an_event_is_tried_and_explained(server, visit):
    cheap, dear = subscribe(server, "price < 10"), subscribe(server, "price > 100", user="bob")
    page = visit(server)
    event = page.get_by_label("Event, as JSON")
    expect(event).to_have_value(re.compile('"symbol": "text"'))
    assert json.loads(event.input_value()) == {"price": 1, "symbol": "text"}
    ask_for(page, {"price": 9.5})
    expect(page.locator("#found-text")).to_have_text("1 subscription matches.")
    expect(page.locator("#found li")).to_have_text(re.compile(rf"{cheap}\s*price < 10 ann\s*Why\?"))
    page.get_by_role("button", name=f"Why does {cheap} match?").click()
    expect(page.locator("#why-title")).to_have_text(f"Subscription {cheap} matches")
    expect(page.locator("#why-lines .yes")).to_contain_text("price < 10: is 9.5")
    page.get_by_label("Ask why a subscription").fill(str(dear))
    page.get_by_role("button", name="Why?", exact=True).click()
    expect(page.locator("#why-title")).to_have_text(f"Subscription {dear} does not match")
    expect(page.locator("#why-lines .no")).to_contain_text("price > 100: is 9.5, too low by 90.5")
    assert server.ask("GET", EVENTS, user="admin").body["events"] == []


def test_what_the_server_refuses_is_shown_as_it_says_it(server, visit):
    page = visit(server)
    ask_for(page, '{"price": NaN}')
    expect(page.locator("#try-error")).to_contain_text("The event cannot be used: this is not JSON")
    ask_for(page, {"price": 1})
    expect(page.locator("#try-error")).to_have_text("")
    page.get_by_label("Ask why a subscription").fill("999")
    page.keyboard.press("Enter")
    expect(page.locator("#why-error")).to_have_text("There is no such thing: there is no subscription 999")


def test_a_stored_event_can_be_taken(server, visit):
    publish(server, {"price": 7, "symbol": "ACME", "more": [1]})
    page = visit(server)
    expect(page.get_by_label("Event, as JSON")).not_to_have_value("")
    page.get_by_role("button", name="Take a stored event").click()
    expect(page.get_by_label("Event, as JSON")).to_have_value(re.compile("ACME"))


def test_another_filter_has_an_event_of_its_own(server, visit):
    attributes = {"truck": "str", "at.depth": {"type": "int", "low": 4, "high": 8}, "when": "timestamp"}
    schema = {"strict": True, "attributes": attributes}
    assert server.ask("PUT", "/filters/trucks", {"schema": schema}, user="admin").status == 200
    page = visit(server)
    page.get_by_label("Filter").select_option("trucks")
    expect(page.get_by_label("Event, as JSON")).to_have_value(re.compile("truck"))
    event = json.loads(page.get_by_label("Event, as JSON").input_value())
    assert (event["truck"], event["at"]) == ("text", {"depth": 6})
    page.get_by_role("button", name="What matches?").click()
    expect(page.locator("#found-text")).to_have_text("No subscription matches.")


def test_hostile_names_and_conditions_are_text(server, visit):
    evil = "<img src=x onerror=alert(1)>"
    made = subscribe(server, f"symbol = '{evil}'", user=evil)
    publish(server, {"symbol": evil})
    page = visit(server)
    expect(page.locator("#slowest th")).to_have_text(evil)
    ask_for(page, {"symbol": evil})
    expect(page.locator("#found code")).to_have_text(f"symbol = '{evil}'")
    page.get_by_role("button", name=f"Why does {made}").click()
    expect(page.locator("#why-lines")).to_contain_text(evil)
    assert page.locator("img").count() == 1  # the icon


# Who looks


def sign_in(page, user, secret):
    page.get_by_label("User").fill(user)
    page.get_by_label("Password or token").fill(secret)
    page.get_by_role("button", name="Sign in").click()


def test_an_admin_signs_in_and_out(guarded, visit):
    page = visit(guarded)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.locator("#state")).to_have_text("Signed out")
    assert not page.locator("#watch").is_visible()
    sign_in(page, "root", "wrong")
    expect(page.locator("#sign-in-error")).to_contain_text("The client is not authenticated")
    sign_in(page, "root", "the password of root")
    expect(page.locator("#held")).to_have_text("0")
    expect(page.locator("#user")).to_have_text("root")
    page.reload()
    expect(page.locator("#held")).to_have_text("0")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert not page.locator("#watch").is_visible()
    assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [0, 0, ""]


@pytest.mark.long
def test_others_see_their_own_numbers_and_may_try(guarded, visit):
    page = visit(guarded)
    sign_in(page, "", guarded.tokens["ann"])
    expect(page.locator("#own-subscriptions")).to_have_text("0")
    expect(page.locator("#user")).to_have_text("ann")
    assert not page.locator("#watch").is_visible()
    expect(page.get_by_label("Event, as JSON")).to_have_value(re.compile("price"))
    ask_for(page, {"price": 1})
    expect(page.locator("#found-text")).to_have_text("No subscription matches.")


@pytest.mark.long
def test_a_token_that_is_good_no_more_ends_it(guarded, visit):
    page = visit(guarded)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()  # so that nothing is under way
    page.evaluate("sessionStorage.setItem('rtfilter.authorization', 'Bearer rtf_gone')")
    page.reload()
    expect(page.locator("#sign-in-error")).not_to_have_text("")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_without_users_one_may_be_another(server, visit):
    subscribe(server, "price < 10")
    page = visit(server)
    page.get_by_role("button", name="Sign in").first.click()
    page.get_by_label("User").fill("bob")
    page.get_by_label("User").press("Enter")
    expect(page.locator("#user")).to_have_text("bob")
    ask_for(page, {"price": 1})
    expect(page.locator("#found-text")).to_have_text("No subscription matches.")


# For everyone


def test_all_can_be_done_by_keyboard_and_the_focus_is_seen(server, visit):
    made = subscribe(server, "price < 10")
    page = visit(server)
    expect(page.get_by_label("Event, as JSON")).to_have_value(re.compile("price"))
    focused = "document.activeElement"

    def tab_to(what):
        for _ in range(30):
            page.keyboard.press("Tab")
            style = page.evaluate(f"getComputedStyle({focused}).outlineStyle")
            assert style == "solid" or page.evaluate(f"{focused} === document.body")
            if page.evaluate(f"{focused}.id || {focused}.textContent") == what:
                return
        raise AssertionError(f"{what} cannot be reached")

    tab_to("try-event")
    page.keyboard.press("Control+A")
    page.keyboard.type('{"price": 2}')
    tab_to("What matches?")
    page.keyboard.press("Enter")
    expect(page.locator("#found li")).to_have_count(1)
    tab_to("Why?")
    page.keyboard.press("Enter")
    expect(page.locator("#why-title")).to_have_text(f"Subscription {made} matches")


@pytest.mark.long
def test_each_second_nothing_is_read_out(server, visit):
    page = visit(server)
    expect(page.locator("#state")).to_have_text("Live")
    live = "[aria-live], [role=status], [role=alert]"
    changed = page.evaluate(
        """async (live) => {
            const seen = [], watcher = new MutationObserver((found) => seen.push(...found));
            for (const one of document.querySelectorAll(live)) {
                watcher.observe(one, {childList: true, characterData: true, subtree: true});
            }
            const before = looks.at(-1).uptime;
            while (looks.at(-1).uptime < before + 2) await new Promise((done) => setTimeout(done, 50));
            return seen.length;
        }""",
        live,
    )
    assert changed == 0


@pytest.mark.long
@pytest.mark.parametrize("width", long_but([320, 640], (320,)))
def test_nothing_is_wider_than_a_small_screen(server, visit, width):
    long = "n" * 150
    made = subscribe(server, f"symbol = '{long}'", user=long)
    publish(server, *[{"symbol": long, "price": price} for price in range(40)])
    page = visit(server, width=width)
    expect(page.locator("#slowest th")).to_have_text(long)
    ask_for(page, {"symbol": long})
    page.get_by_role("button", name=f"Why does {made}").click()
    expect(page.locator("#why-title")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    wide = "[...document.querySelectorAll('main *')].filter((one) => one.scrollWidth > innerWidth).length"
    assert page.evaluate(wide) == 0


@pytest.mark.long
def test_it_is_light_or_dark_as_wished_and_rests_where_wished(server, visit):
    page = visit(server, reduced_motion="reduce")
    shades = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
        shades.append(sum(map(int, re.findall(r"\d+", shade))))
    assert shades[0] > 600 > 200 > shades[1]
    moving = (
        "[...document.querySelectorAll('*')].some((one) => getComputedStyle(one).transitionDuration !== '0s')"
    )
    assert not page.evaluate(moving)


@contextmanager
def checked(page):
    """After the block, axe finds nothing wrong in light, and no colors that are wrong in dark."""
    yield
    for scheme, rules in (("light", {}), ("dark", {"runOnly": "cat.color"})):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page, options={"resultTypes": ["violations"], **rules})
        assert found.violations_count == 0, found.generate_report()


def test_axe_finds_nothing_wrong_with_the_numbers(server, visit):
    made = subscribe(server, "price < 10")
    publish(server, *[{"price": price} for price in range(40)])
    page = visit(server)
    with checked(page):
        expect(page.locator("#plans th")).to_have_count(1)
        ask_for(page, {"price": 1})
        page.get_by_role("button", name=f"Why does {made}").click()
        expect(page.locator("#why-title")).to_be_visible()


@pytest.mark.long
def test_axe_finds_nothing_wrong_with_signing_in(guarded, visit):
    page = visit(guarded)
    with checked(page):
        sign_in(page, "root", "wrong")
        expect(page.locator("#sign-in-error")).to_contain_text("not known")
    with checked(page):
        sign_in(page, "ann", "the password of ann")
        expect(page.locator("#own-subscriptions")).to_have_text("0")


def test_a_site_shows_its_place_and_its_neighbours(tmp_path, visit):
    own = "http://127.0.0.1:9"
    with running(tmp_path, site="paris", address=own, rendezvous=own, heartbeat=0.1) as server:
        page = visit(server)
        with checked(page):
            expect(page.locator("#site")).to_have_text("paris, at the root")
            assert cells(page, "neighbours") == [["There is no other site yet."]]
        near = {"site": "rome", "connected": True, "waiting": 1234}
        site = {"site": "paris", "root": False, "parent": "", "current": False, "neighbours": [near]}
        shown = page.evaluate(
            """(site) => {
                showSites(site);
                return [at("site").textContent, at("neighbours").innerText.split("\\t"), at("sites").hidden];
            }""",
            site,
        )
        assert shown == ["paris, cut off, catching up", ["rome", "yes", "1,234"], False]
        assert page.evaluate("() => { showSites(null); return at('sites').hidden; }")
