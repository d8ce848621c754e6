from __future__ import annotations

from typing import Any

import pytest

from cloud_run import kits
from segmentstream._cloud_run.settings import ConnectionsSettings, DeploymentSettingsError

DIGEST = f"@sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("field", "value", "option"),
    [
        ("project", "Acme", "--project"),
        ("project", "acme", "--project"),
        ("project", "acme-data\n", "--project"),
        ("project", "acme-data; rm -rf /", "--project"),
        ("region", "europe", "--region"),
        ("region", "europe-west1-b", "--region"),
        ("image", "pipeline", "--image"),
        ("image", "pipeline:latest", "--image"),
        ("image", "Pipeline:1", "--image"),
        ("image", "pipeline:1 --privileged", "--image"),
        ("image", "pipeline@sha256:12", "--image"),
        ("name", "s", "--name"),
        ("name", "shop-", "--name"),
        ("name", "a-name-of-19-letters", "--name"),
        ("sql_instance", "acme-data:europe-west1:shop", "--sql-instance"),
        ("namespace", "my-dataset", "--namespace"),
        ("location", "Mars", "--location"),
        ("memory", "4GB", "--memory"),
        ("cpu", "3", "--cpu"),
        ("timeout_seconds", 0, "--timeout"),
        ("timeout_seconds", 700_000, "--timeout"),
        ("variables", {"a b": "c"}, "--env"),
        ("variables", {"DAGSTER_HOME": "/"}, "--env"),
        ("variables", {"PORT": "1"}, "--env"),
        ("variables", {"API_KEY": "plain"}, "--secret-env"),
        ("secret_variables", {"SEGMENTSTREAM_WAREHOUSE_ENGINE": "x"}, "--secret-env"),
    ],
)
def test_what_google_cloud_would_refuse_is_refused_here(
    field: str, value: Any, option: str
) -> None:
    """Each option is checked before a file is written, and the message names it."""
    with pytest.raises(DeploymentSettingsError, match=f"^{option}") as refused:
        kits.settings(**{field: value})
    assert refused.value.option == option


def test_a_secret_in_the_place_of_its_name_is_not_shown() -> None:
    """Who pastes the secret itself does not find it in a log."""
    with pytest.raises(DeploymentSettingsError) as refused:
        kits.settings(secret_variables={"API_KEY": "sk/very+secret="})
    assert "very" not in str(refused.value)


@pytest.mark.parametrize(
    "image", ["pipeline:1", f"ghcr.io/acme/pipeline{DIGEST}", f"localhost:5000/a/b:1.2-rc{DIGEST}"]
)
def test_an_image_that_stays_itself_is_taken(image: str) -> None:
    """A tag of its own will do, and a digest with or without one."""
    assert kits.settings(image=image).release == image.rsplit("/", 1)[-1]


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("europe-west1-docker.pkg.dev/acme-data/shop/pipeline:1", "shop"),
        ("europe-west1-docker.pkg.dev/acme-data/shop:1", None),
        ("us-central1-docker.pkg.dev/acme-data/shop/pipeline:1", None),
        ("pipeline:1", None),
    ],
)
def test_a_repository_is_made_where_it_is_ours(image: str, repository: str | None) -> None:
    """Only a repository of this project and region is made by setup.sh."""
    settings = kits.settings(image=image)
    assert settings.repository == repository
    assert ("artifacts repositories create" in kits.kit(image=image)["setup.sh"]) == bool(
        repository
    )


@pytest.mark.parametrize("number", ["acme-data", "12 34", ""])
def test_the_number_of_a_project_is_digits(number: str) -> None:
    """The id in place of the number would give an address that leads nowhere."""
    with pytest.raises(DeploymentSettingsError, match="^--project-number"):
        ConnectionsSettings(image="c:1", project_number=number, secrets=())
