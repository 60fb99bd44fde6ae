"""Draw the pictures of the server's page: ``python scripts/screenshot.py`` writes them to docs/pictures.

Real flights come for some time, in bursts, to a server with thousands of alerts. Needs rtree-filter[dev]
and Chromium. Arguments: the seconds, and the folder to write to.
"""

import asyncio
import json
import random
import shutil
import sys
import tempfile
from base64 import b64encode
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from urllib.request import Request, urlopen

from PIL import Image
from playwright.async_api import async_playwright
from serve_demo import flights, serve

from rtfilter.client import connect
from rtfilter.replay.workloads.flights import make

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
ALERTS = {"ann": 2000, "bob": 3000, "tower": 6800, "newark": 150, "weather": 50}
"""How many each user has. The last ones are away, so that their deliveries wait."""
AWAY = {"newark", "weather"}
EVENT = {"carrier": "UA", "origin": "EWR", "dest": "SFO", "dep_delay": 75.0, "distance": 2565.0, "visib": 1.5}
WARM = 30  # seconds in which code is loaded and plans are found
SIZE, WIDE = {"width": 920, "height": 1400}, {"width": 1180, "height": 1400}


def subscribe(url, user, alerts):
    given = b64encode(f"{user}:".encode()).decode()
    headers = {"Authorization": f"Basic {given}", "Content-Type": "application/x-ndjson"}
    lines = "\n".join(json.dumps({"where": alert}) for alert in alerts)
    with urlopen(Request(f"{url}/filters/default/subscriptions", lines.encode(), headers)) as answer:
        answer.read()


async def receive(url, user):
    async with connect(url, user=user) as client:
        async for _ in client:
            pass


async def publish(url, bursts):
    """Publish at a rate that goes up and down, as a day does."""
    sizes = random.Random(1)
    async with connect(url, user="airline") as client:
        while True:
            for burst in bursts:
                await client.publish(burst[: sizes.choice((10, 20, 20, 30, 60))])
                await asyncio.sleep(sizes.choice((0.05, 0.08, 0.12)))


def keep(picture, path):
    """Write a picture with 256 colours, which takes a third of the bytes and looks the same."""
    Image.open(BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        path, optimize=True
    )


async def above(page, place):
    """What is above a heading."""
    box = await page.locator(place).bounding_box()
    return {"x": 0, "y": 0, "width": page.viewport_size["width"], "height": box["y"] - 6}


async def draw(url, seconds, folder):
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = await browser.new_page(viewport=SIZE, device_scale_factor=2)
        await asyncio.sleep(WARM)
        await page.goto(url)
        await asyncio.sleep(seconds)
        keep(await page.screenshot(clip=await above(page, "#inside-title")), folder / "page-top.png")
        await page.set_viewport_size(WIDE)
        for scheme, name in (("light", "page"), ("dark", "page-dark")):
            await page.emulate_media(color_scheme=scheme)
            keep(await page.screenshot(clip=await above(page, "#try-title")), folder / f"{name}.png")
        await page.get_by_label("Event, as JSON").fill(json.dumps(EVENT, indent=2))
        await page.get_by_role("button", name="What matches?").click()
        await page.get_by_role("button", name="Why does").first.click()
        await page.locator("#why-lines").wait_for()
        await page.emulate_media(color_scheme="light")
        keep(await page.locator("#try").screenshot(), folder / "page-try.png")
        await browser.close()


async def show(url, seconds, folder):
    made, first = make(seed=1), 0
    for user, count in ALERTS.items():
        subscribe(url, user, made.subscriptions(first, count))
        first += count
    bursts = flights(60_000, 60)
    running = [asyncio.create_task(receive(url, user)) for user in ALERTS if user not in AWAY]
    running.append(asyncio.create_task(publish(url, bursts)))
    try:
        await draw(url, seconds, folder)
    finally:
        for one in running:
            one.cancel()
            with suppress(asyncio.CancelledError):
                await one


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 75
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else FOLDER
    with tempfile.TemporaryDirectory() as data:
        server, url = serve(data)
        try:
            asyncio.run(show(url, seconds, folder))
        finally:
            server.terminate()
            server.wait()
            server.stdout.close()


if __name__ == "__main__":
    main()
