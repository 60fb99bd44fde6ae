"""Errors as problem documents (RFC 9457)."""

from __future__ import annotations

import logging
import math
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from structlog.contextvars import get_contextvars

from rtfilter.basics.errors import EventError, PredicateError, RTFilterError, UnknownSubscriptionError
from rtfilter.service.measures import Measures
from rtfilter.service.service_errors import KINDS, ServiceError, TooLargeError

MEDIA: Final = "application/problem+json"
CHALLENGE: Final = 'Basic realm="rtfilter", charset="UTF-8", Bearer realm="rtfilter"'
EXPECTED: Final = (RTFilterError, HTTPException, SQLAlchemyError)
"""Errors that are no fault of the server's code."""
PROBLEMS: Final = "/problems/"
"""The start of the type of a problem, before its kind."""
_log = logging.getLogger(__name__)


class MediaTypeError(ServiceError):
    """A body of a type that the server does not read."""

    kind = "media-type"


class MalformedError(ServiceError):
    """The bytes of a request are no HTTP."""

    kind = "malformed"


class HeadersError(TooLargeError):
    """Headers that are longer than the server takes."""

    @property
    def status(self) -> int:
        """The status of HTTP."""
        return 431


class SilentError(ServiceError):
    """A body that does not arrive."""

    kind = "silent"


class HostError(ServiceError):
    """The request is meant for another host."""

    kind = "host"


class OriginError(ServiceError):
    """A browser sent the request for a page of another host."""

    kind = "origin"


class Problem(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An error (RFC 9457)."""

    type: Annotated[
        str, Meta(description="Of the kind; programs can compare it.", examples=["/problems/predicate"])
    ]
    title: str
    status: int
    detail: str
    row: Annotated[int | None, Meta(description="Which of several, from 0. Empty lines do not count.")] = None
    attribute: Annotated[str | None, Meta(description="Name of an attribute of the filter.")] = None
    position: Annotated[int | None, Meta(description="Place in the SQL text, from 0.")] = None
    request: Annotated[str | None, Meta(description="Id of the request, as in the log of the server.")] = None

    @property
    def kind(self) -> str:
        """The kind of the problem."""
        return self.type.removeprefix(PROBLEMS)


def describe(error: Exception, row: int | None = None) -> Problem:
    """Return the problem document of an error, without details of the server's inside.

    Parameters
    ----------
    error : Exception
    row : int, optional
        Its place among several, from 0, if the error does not say so itself.
    """
    found = _about(error)
    row = found.row if row is None else row
    if row is not None:
        found.row, found.detail = row, f"row {row}, counted from 0: {found.detail}"
    return found


def _about(error: Exception) -> Problem:
    match error:
        case ServiceError():
            return _problem(error.kind, str(error), status=error.status)
        case PredicateError():
            places = {"row": error.row, "attribute": error.attribute, "position": error.position}
            return _problem("predicate", error.message, **places)
        case EventError():
            return _problem("event", error.message, row=error.row, attribute=error.attribute)
        case UnknownSubscriptionError():
            return _problem("unknown", str(error))
        case RTFilterError():
            return _problem("request", str(error))
        case HTTPException(status_code=404):
            return _problem("unknown", "there is nothing at this path; /openapi.json lists all paths")
        case HTTPException():  # the framework raises no others
            return _problem("method", "the path does not have this method; /openapi.json lists its methods")
        case SQLAlchemyError():
            detail = "the database does not answer; try again, with an idempotency key to store nothing twice"
            return _problem("busy", detail)
    return _problem("internal", "the server failed; its log says why")


def _problem(kind: str, detail: str, **more: Any) -> Problem:
    status, title = KINDS[kind]
    return Problem(**{"type": PROBLEMS + kind, "title": title, "status": status, "detail": detail, **more})


def response(error: Exception) -> Response:
    """Return the answer to an error, with the id of the request that is being served."""
    found = describe(error)
    found.request = get_contextvars().get("request")
    headers: dict[str, str] = {}
    if found.status == 401:
        headers["www-authenticate"] = CHALLENGE
    if isinstance(error, HTTPException):
        headers.update(error.headers or {})
    after = 1.0 if isinstance(error, SQLAlchemyError) else getattr(error, "retry_after", None)
    if after is not None:
        headers["retry-after"] = str(math.ceil(after))
    return Response(msgspec.json.encode(found), found.status, headers, media_type=MEDIA)


def answer(error: Exception, measures: Measures) -> Response:
    """Return the answer to a request that failed, and count it."""
    if isinstance(error, SQLAlchemyError):
        measures.database_errors += 1
        _log.error("the database fails: %s", type(error).__name__, exc_info=error)
    measures.refuse("http", describe(error).kind)
    return response(error)
