"""The server as an ASGI application."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp

from rtfilter import __version__
from rtfilter.service.doors import event_doors, management, models, page, problems
from rtfilter.service.doors.admission import HostCheck
from rtfilter.service.doors.bodies import JSON, Rooms
from rtfilter.service.doors.quick import Quick
from rtfilter.service.doors.requests import Requests
from rtfilter.service.doors.server_metrics import PipelineCollector
from rtfilter.service.doors.shared import RequestLimits, Served
from rtfilter.service.doors.streamed import MOST_ANSWERS, Answers
from rtfilter.service.doors.webhook_doors import doors as webhook_doors
from rtfilter.service.doors.websocket import session
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.webhooks import Webhooks


def application(
    pipeline: Pipeline, metrics: PipelineCollector, limits: RequestLimits, loopback: bool, webhooks: Webhooks
) -> ASGIApp:
    """Return the server as an ASGI application.

    Parameters
    ----------
    pipeline : Pipeline
        A pipeline that runs.
    metrics : PipelineCollector
    limits : RequestLimits
    loopback : bool
        True if the server answers only to names of this machine's loopback; see `HostCheck`.
    webhooks : Webhooks
    """
    app = FastAPI(
        title="rtfilter",
        version=__version__,
        summary="Subscribe, publish, deliver",
        description="Errors are problem documents (RFC 9457). Sessions are at `/session`, over WebSocket.",
        docs_url=None,  # pages that would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        responses={"default": {"model": problems.Problem, "description": "What is wrong"}},
    )
    app.state.pipeline, app.state.limits, app.state.metrics = pipeline, limits, metrics
    app.state.webhooks, app.state.rooms = webhooks, Rooms(limits.body)
    app.state.answers = Rooms(MOST_ANSWERS)
    problems.install(app)
    routers = event_doors.doors(), management.doors(), webhook_doors(), page.doors(), _open_doors()
    for router in routers:
        app.include_router(router)
    app.add_api_websocket_route("/session", session)
    plain = app.openapi
    app.openapi = lambda: _as_problems(plain())  # type: ignore[method-assign]
    return Requests(HostCheck(Answers(Quick(app, routers[0].routes)), pipeline.measures, loopback))


def _as_problems(document: dict[str, Any]) -> dict[str, Any]:
    """Set the media type of errors in an OpenAPI document."""
    for path in document["paths"].values():
        for operation in path.values():
            content = operation["responses"]["default"]["content"]
            if JSON in content:
                content[problems.MEDIA] = content.pop(JSON)
    return document


async def health(pipeline: Served, response: Response) -> models.Health:
    """Return whether the server works."""
    response.status_code = 200 if pipeline.healthy else 503
    return models.Health(status="ok" if pipeline.healthy else "failed")


async def ready(pipeline: Served, response: Response) -> models.Health:
    """Return whether the start is complete and the database answers."""
    response.status_code = 200 if pipeline.ready else 503
    if pipeline.stopping:
        return models.Health(status="stopping")
    if pipeline.stuck:
        return models.Health(status="busy")
    return models.Health(status="ok" if pipeline.ready else "starting" if pipeline.healthy else "failed")


async def show_metrics(request: Request, pipeline: Served) -> Response:
    """Return the metrics for Prometheus. If the server has users, only admins may read them."""
    await page.watcher(request, pipeline)
    metrics: PipelineCollector = request.app.state.metrics
    return Response(await metrics.text(), media_type=CONTENT_TYPE_LATEST)


def _open_doors() -> APIRouter:
    router = APIRouter()
    for path, show in (("/healthz", health), ("/readyz", ready)):
        router.add_api_route(path, show, methods=["GET"])
        router.add_api_route(path, show, methods=["HEAD"], include_in_schema=False)  # as probes ask
    text: dict[int | str, dict[str, Any]] = {
        200: {"description": "Metrics", "content": {"text/plain": {"schema": {"type": "string"}}}}
    }
    router.add_api_route("/metrics", show_metrics, methods=["GET"], response_class=Response, responses=text)
    return router
