"""Every example of the OpenAPI document, asked of a server."""

import json
import re

import msgspec
import pytest

from rtfilter.service.doors import models
from service.running import running

ORDER = ["put", "post", "get", "delete"]


@pytest.fixture(scope="module")
def documented(tmp_path_factory):
    """A server with the subscription, as the examples have them; and the document."""
    folder, own = tmp_path_factory.mktemp("documented"), "http://127.0.0.1:9"
    site = {"site": "a", "address": own, "rendezvous": own}
    with running(folder, schema=None, webhook_private=True, **site) as server:
        document = server.ask("GET", "/openapi.json", user=None).body
        body = document["paths"]["/filters/{filter}"]["put"]["requestBody"]
        wanted = body["content"]["application/json"]["examples"]["0"]["value"]
        assert server.ask("PUT", "/filters/default", wanted, user="admin").status == 200
        made = server.ask("POST", "/filters/default/subscriptions", {"where": "price > 100"}, user="admin")
        assert made.body == {"subscription": 2}
        server.settle()
        yield server, document


def bodies(operation):
    """Type and value of each example of a body."""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        examples = [one["value"] for one in content.get("examples", {}).values()]
        for value in examples:
            yield kind, value.encode() if isinstance(value, str) else json.dumps(value).encode()
        assert examples or kind == "application/vnd.apache.arrow.stream", (kind, operation["operationId"])


def requests(document):
    """Of each path and method: path with query, body, type, headers, statuses."""
    operations = [
        (method, path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
    for method, path, operation in sorted(operations, key=lambda one: (ORDER.index(one[0]), -len(one[1]))):
        query, headers = [], {}
        for parameter in operation.get("parameters", []):
            given = parameter["schema"].get("examples") or [None]
            if parameter["in"] == "path":
                path = path.replace(f"{{{parameter['name']}}}", str(given[0]))
            elif parameter["in"] == "query" and given[0] is not None:
                query.append(f"{parameter['name']}={str(given[0]).replace(' ', '+').replace('>', '%3E')}")
            elif parameter["in"] == "header" and given[0] is not None:
                headers[parameter["name"]] = given[0]
        path += "?" + "&".join(query) if query else ""
        good = {int(status) for status in operation["responses"] if re.fullmatch("2..", status)}
        for kind, body in list(bodies(operation)) or [(None, None)]:
            own = {**headers, **({"idempotency-key": repr(body)} if "idempotency-key" in headers else {})}
            yield method.upper(), path, body, kind, own, good


@pytest.mark.slow
def test_every_example_is_answered_as_documented(documented):
    server, document = documented
    asked = list(requests(document))
    assert len(asked) > 20
    for method, path, body, kind, headers, good in asked:
        answer = server.ask(method, path, body, kind=kind, user="admin", **headers)
        good |= {409} if path == "/site/strategy" else set()  # this server stands for no cluster
        good |= {404} if path == "/site/sites/tokyo" else set()  # there is no such site
        assert answer.status in good, (method, path, body, answer.status, answer.body)
        assert "{" not in path


@pytest.mark.slow
def test_all_that_is_served_is_documented_with_its_errors(documented):
    _, document = documented
    for path, item in document["paths"].items():
        for operation in item.values():
            assert "application/problem+json" in operation["responses"]["default"]["content"], path
            assert "422" not in operation["responses"]
            assert operation["description"]
            secured = {name for one in operation.get("security", []) for name in one}
            lone = ("/healthz", "/readyz", "/metrics", "/status", "/site")
            assert secured == (set() if path in lone else {"basic", "bearer"})
    assert document["info"]["version"]


def test_pages_are_answered_as_their_models_say(documented):
    server, _ = documented
    server.ask("PUT", "/filters/pages", {"schema": {"price": "float"}}, user="admin")
    server.ask("POST", "/filters/pages/subscriptions", {"where": "price > 100"}, user="admin")
    server.ask("POST", "/filters/pages/events", {"price": 101})
    server.settle()
    for path, model in [
        ("/filters/pages/events", models.EventsShown),
        ("/deliveries", models.DeliveriesShown),
    ]:
        answer = server.ask("GET", path, user="admin")
        assert b'"price": 101' in answer.bytes
        assert msgspec.to_builtins(msgspec.json.decode(answer.bytes, type=model)) == answer.body


@pytest.mark.slow
def test_acknowledgements_and_schemas_are_documented_with_their_bounds(documented):
    _, document = documented
    asked = document["components"]["schemas"]["Acknowledgement"]
    assert asked["additionalProperties"] is False
    assert asked["properties"]["positions"]["items"]["minimum"] == 0
    wanted = document["components"]["schemas"]["FilterWanted"]["properties"]["schema"]
    assert [one.get("minProperties", one.get("minItems")) for one in wanted["anyOf"]] == [1, 1]
