"""Who a process on Google Cloud is, as a token for one audience; imports google-auth on use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC
from typing import Any

from segmentstream._clients.settings import TOKEN_VARIABLE
from segmentstream._core.errors import ConnectionAccessError

_MARGIN_SECONDS = 300.0  # identity tokens live for an hour
_CODE = "identity_unavailable"


class IdentityTokens:
    """Gets identity tokens from the metadata server, or for a service account's key file.

    Args:
        audience: For whom they are: the connections service.
        clock: The wall clock, in seconds since 1970.
    """

    def __init__(self, audience: str, *, clock: Callable[[], float] = time.time) -> None:
        self._audience = audience
        self._clock = clock
        self._asking = threading.Lock()
        self._token: str | None = None
        self._usable_until = 0.0

    def token(self, key: str) -> str:
        """Gives a token that lives some minutes at least.

        Args:
            key: The key of the connection it is asked for, for the text of an error.

        Raises:
            ConnectionAccessError: There is none.
        """
        with self._asking:
            if self._token is None or self._clock() >= self._usable_until:
                self._token, expires_at = self._fetched(key)
                self._usable_until = expires_at - _MARGIN_SECONDS
            return self._token

    def _fetched(self, key: str) -> tuple[str, float]:
        try:
            from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - rarely needed
            from google.auth.transport.requests import Request  # noqa: PLC0415
            from google.oauth2.id_token import fetch_id_token_credentials  # noqa: PLC0415
        except ImportError:
            raise _unavailable(key, "google-auth is not installed") from None
        # Credentials of google-auth, which have no common type for this.
        credentials: Any
        try:
            request = Request()
            credentials = fetch_id_token_credentials(self._audience, request=request)
            credentials.refresh(request)
        except GoogleAuthError as error:
            # Its text can name files and hold what they contain.
            raise _unavailable(
                key,
                "no metadata server answered, and there is no key of a service account",
                retryable=bool(error.retryable),
            ) from None
        if not credentials.token or credentials.expiry is None:
            raise _unavailable(key, "Google gave no identity token")
        return credentials.token, credentials.expiry.replace(tzinfo=UTC).timestamp()


def _unavailable(key: str, why: str, *, retryable: bool = False) -> ConnectionAccessError:
    return ConnectionAccessError(
        f"The connections service cannot be shown who asks for connection {key!r}: {why}.",
        f"Run it on Google Cloud with google-auth installed, or set {TOKEN_VARIABLE} to the token "
        "that the service was given.",
        connection=key,
        code=_CODE,
        retryable=retryable,
    )
