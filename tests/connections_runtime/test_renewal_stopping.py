"""A service that is told to stop while it renews or completes a credential."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from connections_runtime.provider import PATIENCE, Provider
from connections_runtime.renewals import Place, Rotation, callback_of
from connections_runtime.running import ServiceProcess, running_service

_REDIRECT = "https://app.example/callback"


@pytest.fixture
def rotation(provider: Provider) -> Rotation:
    """The tokens of a provider that revokes a grant whose refresh token comes twice."""
    return Rotation(provider=provider)


@pytest.fixture
def place(rotation: Rotation, tmp_path: Path, authority_file: Path) -> Place:
    """A credential in SQLite."""
    return rotation.place(tmp_path, f"sqlite:///{tmp_path}/store/credentials.db", authority_file)


@contextmanager
def service_at(place: Place) -> Iterator[ServiceProcess]:
    """Runs the service that keeps the credential."""
    fields = ", ".join(f"{name}={value!r}" for name, value in place.connection.items())
    declared = (
        f'connections = (OAuth2Connection(key="it", name="It", provider="it", {fields},'
        ' client_id=secret_ref("the-id"), client_secret=secret_ref("the-secret")),)\n'
    )
    with running_service(place.folder, {}, place.environ, more=declared) as service:
        yield service


def begun(service: ServiceProcess) -> dict[str, Any]:
    """Begins an authorization, and gives what completes it."""
    started = service.post("it", "credential/start", {"redirectUri": _REDIRECT}).json()
    return {
        "callback": callback_of(started["authorizationUrl"]),
        "binding": started["binding"],
    }


def completed(service: ServiceProcess, request: object, **options: Any) -> httpx.Response:
    """Completes an authorization."""
    options.setdefault("timeout", PATIENCE)
    with httpx.Client(base_url=service.url, trust_env=False, **options) as client:
        return client.post("/internal/v1/credential/complete", json=request)


def call_briefly(service: ServiceProcess, path: str, body: object) -> httpx.Response:
    """Calls the service, and hangs up if it takes a while."""
    with httpx.Client(base_url=service.url, trust_env=False, timeout=0.5) as client:
        return client.post(path, json=body)


def stored(place: Place) -> Any:
    """Tells what is stored."""
    with place.host() as host:
        return host.ask("look")


def test_a_renewal_in_flight_is_stored_and_answered(place: Place, rotation: Rotation) -> None:
    """A service that is told to stop stores the pair it waits for, and gives it to its caller."""
    with service_at(place) as service, ThreadPoolExecutor(1) as pool:
        assert completed(service, begun(service)).status_code == 200
        gate = rotation.gate_next()
        waiting = pool.submit(service.post, "it", "credential/refresh", {})
        assert gate.is_reached.wait(PATIENCE)
        service.stop()
        service.wait_for_log("Shutting down")
        gate.is_open.set()
        answer = waiting.result().json()
        assert (answer["tokenNumber"], answer["persisted"]) == (2, True)
        service.process.wait(PATIENCE)
    assert stored(place)["token"] == "access-2"


def test_an_authorization_in_flight_is_stored_and_answered(
    place: Place, rotation: Rotation
) -> None:
    """A service that is told to stop stores what a person has just authorized."""
    with service_at(place) as service, ThreadPoolExecutor(1) as pool:
        request = begun(service)
        gate = rotation.gate_next()
        waiting = pool.submit(completed, service, request)
        assert gate.is_reached.wait(PATIENCE)
        service.stop()
        service.wait_for_log("Shutting down")
        gate.is_open.set()
        answer = waiting.result().json()
        assert (answer["state"], answer["persisted"]) == ("connected", True)
        service.process.wait(PATIENCE)
    assert stored(place)["token"] == "access-1"


@pytest.mark.parametrize("what", ["renewal", "authorization"])
def test_what_nobody_waits_for_is_stored_before_the_end(
    place: Place, rotation: Rotation, what: str
) -> None:
    """A service that stops waits for the provider also where the caller has hung up."""
    with service_at(place) as service:
        request = begun(service)
        if what == "renewal":
            completed(service, request)
            path, body = "/internal/v1/connections/it/credential/refresh", {}
        else:
            path, body = "/internal/v1/credential/complete", request
        newest = f"access-{2 if what == 'renewal' else 1}"
        gate = rotation.gate_next()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(call_briefly, service, path, body)
            assert gate.is_reached.wait(PATIENCE)
            assert isinstance(waiting.exception(), httpx.ReadTimeout)
        service.stop()
        service.wait_for_log("Waiting for background tasks")
        gate.is_open.set()
        service.process.wait(PATIENCE)
    assert stored(place)["token"] == newest
