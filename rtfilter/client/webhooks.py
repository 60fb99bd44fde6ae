"""The check of a webhook request's signature, which proves that the server sent it. Needs no connection."""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Mapping
from typing import Final

TOLERANCE: Final = 300.0
"""Seconds that the clocks, and the way, may take."""


class SignatureError(ValueError):
    """A request that was not signed with the secret, or too long ago; do nothing of what it says."""


def verify(headers: Mapping[str, str], body: bytes, secret: str, now: float | None = None) -> None:
    """Return where a request is signed with the secret and is not older than five minutes.

    Parameters
    ----------
    headers : mapping of str to str
        Of the request; in any case of letters.
    body : bytes
        As it came.
    secret : str
        ``whsec_...``, as the server told it when the webhook was made.
    now : float, optional
        Seconds since 1970.

    Raises
    ------
    SignatureError
    """
    given = {name.lower(): value for name, value in headers.items()}
    try:
        id, stamp = given["webhook-id"], given["webhook-timestamp"]
        signatures, moment = given["webhook-signature"].split(), int(stamp)
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except KeyError as error:
        raise SignatureError(f"the header {error.args[0]} is missing") from None
    except binascii.Error:
        raise SignatureError("the secret is not one: it begins with whsec_") from None
    except ValueError:
        raise SignatureError("the header webhook-timestamp is no number") from None
    if abs((time.time() if now is None else now) - moment) > TOLERANCE:
        raise SignatureError("the request was signed too long ago, or the clocks differ")
    made = hmac.digest(key, f"{id}.{stamp}.".encode() + body, "sha256")
    right = b"v1," + base64.b64encode(made)
    if not any(hmac.compare_digest(right, one.encode()) for one in signatures):
        raise SignatureError("the signature is wrong")
