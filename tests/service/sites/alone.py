"""A site whose neighbours do not exist, in the event loop of a test."""

import asyncio
import time

from served import served

from rtfilter.overlay.broker_names import BrokerPlace
from rtfilter.service.sites.peers import Credentials
from rtfilter.service.sites.site import SiteSettings
from rtfilter.store.site_table import SiteTable

HERE = "http://127.0.0.1:9"
ALONE = SiteSettings("here", "here", HERE, HERE, Credentials("here"), heartbeat=0.1)
ALL = frozenset({"here", "near"})
PLACE = BrokerPlace("cluster", "here", "here", ALL, "above", {"above": "over", "below": "under"})


def alone(path, script, settings=ALONE, **more):
    async def run(pipeline):
        pipeline.join(settings, SiteTable(pipeline._log._engine))
        return await script(pipeline, pipeline.site)

    return served(path, run, **more)[0]


async def until(found):
    end = time.monotonic() + 60
    while not found():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
