"""The peer: a small FastAPI application that matches with `rtree`, as one would write it by hand.

It keeps nothing and delivers nothing: it only answers which boxes contain each event.
"""

from __future__ import annotations

import os

import msgspec
import numpy as np
from fastapi import FastAPI, Request, Response
from rtree.index import Index

from experiments.peers.trees import RtreePacked
from rtfilter.replay.workloads import Bounds

app = FastAPI()
"""Of the boxes in the file that the variable ``BOXES`` names."""


def _load() -> tuple[list[str], Index]:
    with np.load(os.environ["BOXES"]) as kept:
        return kept["names"].tolist(), RtreePacked.build(Bounds(kept["low"], kept["high"]))


_names, _index = _load()


@app.post("/match")
async def match(request: Request) -> Response:
    """Return the boxes that contain each event; events come as JSON lines."""
    found = []
    for line in (await request.body()).split(b"\n"):
        event = msgspec.json.decode(line)
        point = [event[name] for name in _names]
        found.append(list(_index.intersection(point + point)))
    return Response(msgspec.json.encode({"matches": found}), media_type="application/json")
