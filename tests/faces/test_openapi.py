"""The OpenAPI document is valid 3.1, and the running service does what it says and nothing else."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import positive_data_acceptance

from nonbis.faces.openapi import document
from tests.acceptance.processes import ServeProcess
from tests.acceptance.sizes import sized
from tests.faces.asgi import Face
from tests.faces.contract import CODES, Answer, check

EXAMPLES = sized(12, 400)
OPERATIONS = [(method, path) for path, methods in document()["paths"].items() for method in methods]


def test_the_document_is_what_is_served(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        answer = face.get("/openapi.json")
        assert answer.headers["content-type"] == "application/json"
        assert answer.json == document()
    with Face(tmp_path, currency="CHF") as face:
        assert face.get("/openapi.json").json == document("CHF")
        assert face.pay("order-1").json["currency"] == transfer_of(document("CHF"))["currency"]["default"]


def transfer_of(whole: dict[str, Any]) -> dict[str, Any]:
    members: dict[str, Any] = whole["components"]["schemas"]["Transfer"]["properties"]
    return members


def responses_of(path: str) -> dict[str, Any]:
    found: dict[str, Any] = document()["paths"][path]["post"]["responses"]
    return found


def test_where_a_running_payment_is_told_differs_between_the_two_posts() -> None:
    for path, said, other in (("/payments", "409", "503"), ("/payment", "503", "409")):
        assert "`in-progress`" in responses_of(path)[said]["description"]
        assert "`in-progress`" not in responses_of(path)[other]["description"]
        assert "`effect` unknown" in responses_of(path)["503"]["description"]
    assert "`rail-unreachable`" in responses_of("/payments")["503"]["description"]
    assert "`rail-unreachable`" not in responses_of("/payment")["503"]["description"]


def test_limits_are_told_in_words() -> None:
    whole = str(document())
    for words in ("1 to 10000, 100 if it is left out", "1048576 bytes", "application/*+json", "At most 128"):
        assert words in whole, words


def test_it_is_a_valid_document_of_openapi_3_1() -> None:
    schema = schemathesis.openapi.from_dict(document())
    schema.validate()
    assert schema.specification.version.startswith("3.1")


def test_an_invalid_document_is_found() -> None:
    broken = document()
    broken["paths"]["/payments"]["post"]["responses"] = []
    with pytest.raises(Exception, match="responses|is not of type|valid"):
        schemathesis.openapi.from_dict(broken).validate()


def test_each_schema_is_valid_in_itself() -> None:
    schemas = document()["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert set(schemas["Problem"]["properties"]["code"]["enum"]) == CODES


def test_each_reference_leads_somewhere() -> None:
    schemas = document()["components"]["schemas"]
    references = set(_references(document()))
    assert {f"#/components/schemas/{name}" for name in schemas} == references


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, member in value.items():
            if name == "$ref":
                yield member
            else:
                yield from _references(member)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def test_a_payment_that_is_good_by_the_document_is_taken(tmp_path: Path) -> None:
    """And the other way round: what the document refuses is refused; by hand for each bound."""
    transfer = document()["components"]["schemas"]["Transfer"]
    validator = jsonschema.Draft202012Validator(transfer)
    orders: list[dict[str, Any]] = [
        {"amount": amount, "destination": destination, **more}
        for amount in (0, 1, 2**53 - 1)
        for destination in ("", "d", "d" * 128, "d" * 129)
        for more in ({}, {"currency": "EUR"}, {"currency": "ABC"}, {"description": None}, {"other": 1})
    ]
    with Face(tmp_path) as face:
        for number, order in enumerate(orders):
            taken = face.pay(f"order-{number}", **order).status == 201
            assert taken is validator.is_valid(order), order


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """One running service with the simulated rail, for all operations."""
    load_all_checks()
    with ServeProcess(tmp_path_factory.mktemp("openapi")) as running:
        yield running


def mend(case: Any) -> None:
    """What the document says in words only: no point, visible characters, one name in one place or both."""
    case.body["amount"] = int(case.body["amount"])
    assume(case.body["destination"].isprintable() and " " not in case.body["destination"])
    if case.body.get("uuid") is not None:
        case.headers.pop("Idempotency-Key", None)
    elif "Idempotency-Key" not in case.headers:
        case.headers["Idempotency-Key"] = str(uuid.uuid4())


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one[0]} {one[1]}")
def test_the_running_service_against_the_document(
    server: ServeProcess, operation: tuple[str, str], mode: GenerationMode
) -> None:
    method, path = operation
    schema = schemathesis.openapi.from_dict(document())
    one = schema[path][method]
    if mode is GenerationMode.NEGATIVE and not (one.body or list(one.iter_parameters())):
        assert path in ("/livez", "/readyz")
        return

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=one.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        if mode is GenerationMode.POSITIVE and method == "post":
            mend(case)
        elif mode is GenerationMode.POSITIVE:
            # Schemathesis decodes and encodes a path once more: a percent sign does not arrive as one.
            assume("%" not in str((case.path_parameters or {}).get("name", "")))
        response = case.call(base_url=f"http://127.0.0.1:{server.port}")
        reused = b"/name-reused" in response.content
        case.validate_response(response, excluded_checks=[positive_data_acceptance] if reused else [])
        headers = {name.lower(): value[0] for name, value in response.headers.items()}
        check(method.upper(), path, Answer(response.status_code, headers, response.content))

    run()


@pytest.mark.parametrize("highest", [8388607, 1099511627775])
def test_the_pattern_of_ids_is_exact(highest: int) -> None:
    pattern = re.compile(document()["components"]["schemas"]["Payment"]["properties"]["id"]["pattern"])
    form = "{}:5" if highest < 10**7 else "5:{}"
    around = [highest - 1, highest, highest + 1, 10 * highest, 10 ** (len(str(highest)) - 1)]
    for number in [1, 9, 10, 99, *around, *(highest // divisor for divisor in range(2, 2000))]:
        assert bool(pattern.search(form.format(number))) is (number <= highest), number
    assert not pattern.search("0:5")
    assert pattern.search("5:0")
