"""Requests that schemathesis makes of the OpenAPI document, with and without rights, as every role."""

import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.strategies import sampled_from
from schemathesis import openapi
from schemathesis.specs.openapi.checks import (
    ignored_auth,
    negative_data_rejection,
    positive_data_acceptance,
)

from proofs import people
from service.running import running

EACH = 2
"""Requests of each operation, allowed and not, in one case."""
IGNORED = [ignored_auth, positive_data_acceptance]
"""Checks of schemathesis: the first asks again with other headers; the second knows nothing of predicates."""
SEVERAL = "GET /subscriptions"
"""What takes the last one of a parameter that is given several times, as an object becomes in a query."""


def run(seed: int, each: int = EACH, open_too: bool = True) -> Counter[str]:
    """All operations, as everyone, with data that the document allows and data that it does not.

    With `open_too` also of a server that has no users.
    """
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for users in (True, False) if open_too else (True,):
            place = Path(folder) / str(users)
            place.mkdir()
            headers = people.add(place) if users else {"open": people.basic("admin", "")}
            with running(place) as server:
                document = openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
                for operation in document.get_all_operations():
                    for mode in schemathesis.GenerationMode:
                        _ask(seed, operation.ok().as_strategy(generation_mode=mode), headers, counts, each)
                assert server.pipeline.healthy, "the server failed"
    return counts


def _ask(seed: int, cases: Any, headers: dict[str, dict[str, str]], counts: Counter[str], each: int) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=each,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(case=cases, who=sampled_from(sorted(headers)))
    def ask(case: Any, who: str) -> None:
        counts[f"{who} {_check(case, who, headers[who])}"] += 1

    with suppress(hypothesis.errors.Unsatisfiable):  # there is nothing that the document does not allow
        ask()


def _check(case: Any, who: str, headers: dict[str, str]) -> int:
    """Ask, and look at the answer; returns its status."""
    others = {name: value for name, value in (case.headers or {}).items() if name.lower() != "authorization"}
    case.headers = others | headers
    answer = case.call(timeout=60)
    status: int = answer.status_code
    said = f"{who}: {case.as_curl_command()} -> {status} {answer.content[:300]!r}"
    assert status < 500, said
    if status >= 400:
        assert answer.headers["content-type"] == ["application/problem+json"], said
    if status == 401:
        assert answer.headers.get("www-authenticate"), said
    if status == 405:
        assert answer.headers.get("allow"), said
    if who in ("nobody", "wrong") and case.operation.path not in ("/healthz", "/readyz"):
        assert status in (400, 401, 404, 405), said  # or it is no HTTP, or no path
    try:
        several = case.operation.label == SEVERAL and isinstance(case.query.get("user"), dict)
        ignored = [*IGNORED, negative_data_rejection] if several else IGNORED
        case.validate_response(answer, excluded_checks=ignored)
    except BaseExceptionGroup as group:
        raise AssertionError(f"{said}: {[str(one) for one in group.exceptions]}") from None
    return status
