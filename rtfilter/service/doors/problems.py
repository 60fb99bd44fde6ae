"""Errors as problem documents (RFC 9457)."""

from __future__ import annotations

import logging
import math
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send
from structlog.contextvars import get_contextvars

from rtfilter.errors import EventError, PredicateError, RTFilterError, UnknownSubscriptionError
from rtfilter.service.measures import Measures
from rtfilter.service.service_errors import ServiceError, TooLargeError

MEDIA: Final = "application/problem+json"
CHALLENGE: Final = 'Basic realm="rtfilter", charset="UTF-8", Bearer realm="rtfilter"'
TITLES: Final = {
    "request": "The request is not understood",
    "json": "The body is not JSON",
    "malformed": "The request is not HTTP",
    "predicate": "The predicate cannot be used",
    "event": "The event cannot be used",
    "media-type": "The body is of a type that the server does not read",
    "unauthenticated": "The client is not authenticated",
    "forbidden": "The user's roles do not allow it",
    "unknown": "There is no such thing",
    "method": "The path has no such method",
    "conflict": "The request conflicts with the present state",
    "silent": "The request does not arrive",
    "too-large": "The request is too large",
    "limit": "A limit of the user is reached",
    "busy": "The server cannot accept the request now",
    "host": "The server does not answer to this host name",
    "origin": "Pages of other hosts may not use the server",
    "internal": "The server failed",
}
"""Titles of problem documents, by kind."""
EXPECTED: Final = (RTFilterError, RequestValidationError, HTTPException, SQLAlchemyError, ClientDisconnect)
"""Errors that are no fault of the server's code."""
PROBLEMS: Final = "/problems/"
"""The start of the type of a problem, before its kind."""
_log = logging.getLogger(__name__)


class MediaTypeError(ServiceError):
    """A body of a type that the server does not read."""

    kind = "media-type"
    status = 415


class MalformedError(ServiceError):
    """The bytes of a request are no HTTP."""

    kind = "malformed"
    status = 400


class HeadersError(TooLargeError):
    """Headers that are longer than the server takes."""

    status = 431


class SilentError(ServiceError):
    """A body that does not arrive."""

    kind = "silent"
    status = 408


class HostError(ServiceError):
    """The request is meant for another host."""

    kind = "host"
    status = 421


class OriginError(ServiceError):
    """A browser sent the request for a page of another host."""

    kind = "origin"
    status = 403


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(description="Of the kind; programs can compare it.", examples=["/problems/predicate"])
    title: str
    status: int
    detail: str
    row: int | None = Field(default=None, description="Which of several, from 0. Empty lines do not count.")
    attribute: str | None = Field(default=None, description="Name of an attribute of the filter.")
    position: int | None = Field(default=None, description="Place in the SQL text, from 0.")
    request: str | None = Field(default=None, description="Id of the request, as in the log of the server.")


class ErrorAnswer(NamedTuple):
    """The problem document and headers of an error, as clients get them."""

    document: dict[str, Any]
    headers: dict[str, str]

    @property
    def kind(self) -> str:
        """The kind of the problem."""
        return str(self.document["type"]).removeprefix(PROBLEMS)

    def response(self) -> Response:
        """Return the answer, with the id of the request that is being served."""
        id = get_contextvars().get("request")
        body = msgspec.json.encode(self.document if id is None else {**self.document, "request": id})
        return Response(body, self.document["status"], self.headers, media_type=MEDIA)


def describe(error: Exception, row: int | None = None) -> ErrorAnswer:
    """Return the answer to an error, without details of the server's inside.

    Parameters
    ----------
    error : Exception
    row : int, optional
        Its place among several, from 0, if the error does not say so itself.
    """
    found = _about(error)
    row = found.document.get("row") if row is None else row
    if row is not None:
        detail = f"row {row}, counted from 0: {found.document['detail']}"
        found.document.update(detail=detail, row=row)
    return found


def _about(error: Exception) -> ErrorAnswer:
    match error:
        case ServiceError():
            headers = {"www-authenticate": CHALLENGE} if error.status == 401 else {}
            if error.retry_after is not None:
                headers["retry-after"] = str(math.ceil(error.retry_after))
            return _document(error.kind, error.status, str(error), headers)
        case PredicateError():
            places: dict[str, Any] = {
                "row": error.row,
                "attribute": error.attribute,
                "position": error.position,
            }
            return _document("predicate", 422, error.message, **places)
        case EventError():
            return _document("event", 422, error.message, row=error.row, attribute=error.attribute)
        case UnknownSubscriptionError():
            return _document("unknown", 404, str(error))
        case RTFilterError():
            return _document("request", 422, str(error))
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return _of_http(error)
        case SQLAlchemyError():
            detail = "the database does not answer; try again, with an idempotency key to store nothing twice"
            return _document("busy", 503, detail, {"retry-after": "1"})
        case _:
            return _document("internal", 500, "the server failed; its log says why")


def _document(
    kind: str, status: int, detail: str, headers: dict[str, str] | None = None, **more: object
) -> ErrorAnswer:
    title = TITLES.get(kind, HTTPStatus(status).phrase)
    known = {name: value for name, value in more.items() if value is not None}
    document = {"type": PROBLEMS + kind, "title": title, "status": status, "detail": detail, **known}
    return ErrorAnswer(document, headers or {})


def _invalid(error: RequestValidationError) -> ErrorAnswer:
    """Describe errors of the control doors' checks. Input is not repeated: it may be long, or a secret."""
    found = error.errors()
    shown = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found[:5]]
    if len(found) > len(shown):
        shown.append(f"and {len(found) - len(shown)} more")
    return _document("request", 422, "; ".join(shown))


def _of_http(error: HTTPException) -> ErrorAnswer:
    """Describe an error of the framework: an unknown path or method."""
    kind = {404: "unknown", 405: "method"}.get(error.status_code, "request")
    detail = {
        404: "there is nothing at this path; /openapi.json lists all paths",
        405: "the path does not have this method; /openapi.json lists its methods",
    }.get(error.status_code, str(error.detail))
    return _document(kind, error.status_code, detail, dict(error.headers or {}))


class _Nothing(Response):
    """No answer, to a peer that has left."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send nothing."""


async def answer(request: Request, error: Exception) -> Response:
    """Return the answer to a request that failed."""
    if isinstance(error, ClientDisconnect):
        return _Nothing()
    measures: Measures = request.app.state.pipeline.measures
    if isinstance(error, SQLAlchemyError):
        measures.database_errors += 1
        _log.error("the database fails: %s", type(error).__name__, exc_info=error)
    found = describe(error)
    measures.refuse("http", found.kind)
    return found.response()


def install(app: FastAPI) -> None:
    """Answer every error of an application with a problem document."""
    for kind in (*EXPECTED, Exception):
        app.add_exception_handler(kind, answer)
