"""The check of a webhook request's signature, which proves that the server sent it, without a connection."""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Mapping
from typing import Final

TOLERANCE: Final = 300.0
"""Most seconds between signature and check, for clock differences and transport."""


class SignatureError(ValueError):
    """A request was not signed with the secret, or too long ago; do not act on it."""


def verify(headers: Mapping[str, str], body: bytes, secret: str, now: float | None = None) -> None:
    """Return if a request is signed with the secret and not older than five minutes; raise otherwise.

    Parameters
    ----------
    headers : mapping of str to str
        Headers of the request; names in any case.
    body : bytes
        Body as received.
    secret : str
        ``whsec_...``, from the server's answer when the webhook was created.
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
