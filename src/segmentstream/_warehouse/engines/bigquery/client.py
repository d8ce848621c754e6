"""Clients of BigQuery's API and their credentials; imports google-cloud-bigquery and `_core`.

Nothing here ever opens a browser: credentials are given, found in the surroundings (Application
Default Credentials), or anonymous for a server that stands in for BigQuery.
"""

from __future__ import annotations

import threading
from typing import cast

import google.auth
from google.api_core.client_info import ClientInfo
from google.api_core.client_options import ClientOptions
from google.api_core.retry import Retry
from google.auth.credentials import AnonymousCredentials, Credentials
from google.auth.exceptions import DefaultCredentialsError
from google.cloud import bigquery

from segmentstream._core.errors import WarehouseConfigurationError
from segmentstream._core.names import (
    BILLING_PROJECT_VARIABLE,
    CATALOG_VARIABLE,
    EMULATOR_VARIABLE,
)
from segmentstream._warehouse.engines.bigquery.names import project_problem
from segmentstream._warehouse.settings import WarehouseSettings

SCOPES = (
    "https://www.googleapis.com/auth/bigquery",
    "https://www.googleapis.com/auth/cloud-platform",
)
# One request; a job is waited for with many.
REQUEST_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 8.0
_USER_AGENT = "segmentstream-pipeline"


class Clients:
    """Makes one client for all threads of a process, when it is first used.

    Attributes:
        project: The project whose tables are read and written.
        billing_project: The project that pays for jobs.
        location: Where jobs run, None to follow the data.
        identity: The same for every object that reaches the same data.
    """

    def __init__(self, settings: WarehouseSettings) -> None:
        self.project = settings.catalog
        self.billing_project = settings.billing_project or settings.catalog
        self.location = settings.location
        self.identity = (self.project, self.billing_project, self.location, settings.endpoint)
        self.is_emulated = settings.endpoint is not None
        self._settings = settings
        self._rest: bigquery.Client | None = None
        self._making = threading.Lock()
        for variable, project in (
            (CATALOG_VARIABLE, self.project),
            (BILLING_PROJECT_VARIABLE, self.billing_project),
        ):
            if problem := project_problem(project):
                raise WarehouseConfigurationError(
                    f"{variable} is {project!r}, which {problem}.", "Correct the variable."
                )

    @property
    def rest(self) -> bigquery.Client:
        """The client of the REST interface; for large results it makes a storage client itself.

        Raises:
            WarehouseConfigurationError: There are no credentials.
        """
        with self._making:
            if self._rest is None:
                self._rest = self._make()
            return self._rest

    def close(self) -> None:
        """Closes the client; the next use makes another."""
        with self._making:
            if self._rest is not None:
                self._rest.close()
                self._rest = None

    def retry(self, seconds: float | None = None) -> Retry:
        """Says how one request is repeated: on lost connections and errors of the server.

        Args:
            seconds: How long in all; as long as the settings let an operation wait when left out.
        """
        # The client library's own table of what is safe to repeat; its first pause is a second.
        patient: Retry = bigquery.DEFAULT_RETRY.with_delay(
            initial=_FIRST_PAUSE_SECONDS, maximum=_LONGEST_PAUSE_SECONDS
        )
        return patient.with_timeout(self._settings.wait_seconds if seconds is None else seconds)

    def _make(self) -> bigquery.Client:
        endpoint = self._settings.endpoint
        options = ClientOptions(api_endpoint=_with_scheme(endpoint)) if endpoint else None
        return bigquery.Client(
            project=self.billing_project,
            credentials=self._credentials(),
            location=self.location,
            client_options=options,
            client_info=ClientInfo(user_agent=_USER_AGENT),
        )

    def _credentials(self) -> Credentials:
        if self._settings.credentials is not None:
            return cast("Credentials", self._settings.credentials)
        if self.is_emulated:
            return AnonymousCredentials()
        try:
            found, _ = google.auth.default(scopes=SCOPES)
        except DefaultCredentialsError as error:
            raise WarehouseConfigurationError(
                f"No Google credentials were found to reach project {self.project!r}.",
                "On a laptop run `gcloud auth application-default login`; on Cloud Run attach a "
                "service account; elsewhere point GOOGLE_APPLICATION_CREDENTIALS to a key file, "
                "or give WarehouseResource(credentials=...). For an emulator set "
                f"{EMULATOR_VARIABLE}.",
            ) from error
        return found


def _with_scheme(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"http://{endpoint}"
