"""Users of a server, one of each role, and the headers by which they ask."""

import base64
from pathlib import Path

from rtfilter.service.access import tokens
from rtfilter.store.database import engine
from rtfilter.store.user_store import Users

ROLES = ["admin", "publisher", "subscriber"]  # the first user has to be an admin


def add(folder: Path) -> dict[str, dict[str, str]]:
    """Add a user of each role; their headers, those of nobody, and wrong ones."""
    database = engine(f"sqlite:///{folder}/log.sqlite")
    users, headers = Users(database), {"nobody": {}, "wrong": {"Authorization": "Bearer rtf_wrong"}}
    for role in ROLES:
        users.add(role, "no password", [role])
        token = tokens.new()
        users.add_token(role, tokens.digest(token))
        headers[role] = {"Authorization": f"Bearer {token}"}
    database.dispose()
    return headers


def basic(name: str, password: str) -> dict[str, str]:
    """By name and password."""
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}
