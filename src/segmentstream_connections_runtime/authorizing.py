"""How a person's authorization becomes a credential, and how a credential ends.

Imports `custody`, `storing`, `oauth` and the errors.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from segmentstream.connections import OAuth2Connection
from segmentstream_connections_runtime.credentials.base import GenerationMovedError
from segmentstream_connections_runtime.credentials.records import (
    Attempt,
    Credential,
    Progress,
    State,
)
from segmentstream_connections_runtime.custody import Custody, Held, found, off_loop
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.oauth import OAuthClient
from segmentstream_connections_runtime.storing import HOLD_SECONDS, Live, TokenStoring, tokens_of

ATTEMPT_SECONDS = 600
INCOMPLETE = (
    "The provider gave no refresh token: the credential ends with its token. Ask for offline "
    "access in authorization_parameters (such as access_type=offline and prompt=consent), then "
    "connect again."
)
_METADATA_CHARACTERS = 1024
_OTHER_HALF_SECONDS = 30.0
_POLL_SECONDS = 0.2
_STATE_BYTES = 32  # 43 characters: some providers cut longer ones
# RFC 6749 section 4.1.2.1; anything else that a provider writes stays unrepeated.
_REFUSALS = {
    "access_denied": "The person, or the provider for them, said no.",
    "invalid_request": "The provider found the request invalid (invalid_request).",
    "invalid_scope": "The provider does not know a scope, or does not grant it (invalid_scope).",
    "server_error": "The provider failed (server_error); try again.",
    "temporarily_unavailable": "The provider is overloaded (temporarily_unavailable); try again.",
    "unauthorized_client": "The client may not do this (unauthorized_client): check its settings "
    "at the provider.",
    "unsupported_response_type": "The provider gives this client no codes "
    "(unsupported_response_type): check its settings at the provider.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Is an authorization that was begun. Its repr shows no secret.

    Attributes:
        url: Where the person's browser goes.
        binding: What the one who began it has to show to complete it.
        expires_at: Until when, in seconds since 1970.
    """

    url: str = field(repr=False)
    binding: str = field(repr=False)
    expires_at: float


class Authorizer:
    """Begins and completes authorizations, and ends them."""

    def __init__(
        self,
        custody: Custody,
        oauth: OAuthClient,
        storing: TokenStoring,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._custody = custody
        self._oauth = oauth
        self._storing = storing
        self._now = now

    async def start(
        self,
        connection: OAuth2Connection,
        account: str,
        *,
        redirect_uri: str,
        variables: Mapping[str, str],
    ) -> Started:
        """Begins one: everything that has to be kept until the browser comes back is stored.

        Raises:
            ServiceError: The store cannot be written, or the client id is not set.
        """
        filled = connection.with_variables(variables)
        state, binding = secrets.token_urlsafe(_STATE_BYTES), secrets.token_urlsafe(_STATE_BYTES)
        verifier = secrets.token_urlsafe(_STATE_BYTES) if connection.pkce else None
        url = self._oauth.authorization_url(
            filled,
            redirect_uri=redirect_uri,
            state=state,
            code_challenge=None if verifier is None else _challenge(verifier),
        )
        attempt = Attempt(
            connection=connection.key,
            account=account,
            redirect_uri=redirect_uri,
            verifier=verifier,
            variables=dict(variables),
            binding_sha256=_digest(binding),
            expires_at=self._now() + ATTEMPT_SECONDS,
        )
        await self._custody.credential(connection.key, account)  # it opens, or nothing is begun
        await self._custody.keep_attempt(state, attempt, expected=0)
        return Started(url=url, binding=binding, expires_at=attempt.expires_at)

    async def find(self, callback: Mapping[str, str], *, binding: str) -> Held[Attempt]:
        """Gives the authorization that a callback belongs to.

        Raises:
            ServiceError: None is under way with its state for whoever holds the binding.
        """
        held = await self._custody.attempt(callback.get("state", ""))
        if (
            held is None
            or held.record.expires_at < self._now()
            or not hmac.compare_digest(held.record.binding_sha256, _digest(binding))
        ):
            raise ServiceError(Code.AUTHORIZATION_NOT_FOUND)
        return held

    async def complete(
        self,
        connection: OAuth2Connection,
        held: Held[Attempt],
        callback: Mapping[str, str],
    ) -> Live:
        """Exchanges the code that the browser brought back, once however often it comes.

        Args:
            connection: The connection of the attempt.
            held: The attempt, as `find` gave it.
            callback: The query of the callback.

        Raises:
            ServiceError: The provider refused, or the callback is not from it.
        """
        state = callback["state"]
        if held.record.progress is not Progress.BEGUN:
            return await self._other_half(state, held.record)
        attempt = replace(held.record, progress=Progress.USED)
        try:
            generation = await self._custody.keep_attempt(state, attempt, expected=held.generation)
        except GenerationMovedError:
            return await self._other_half(state, attempt)
        progress = Progress.FAILED
        try:
            live = await self._exchanged(connection, attempt, callback)
            progress = Progress.DONE
        finally:
            over = replace(attempt, progress=progress, verifier=None)
            # What came of it is what is told, also where the store has gone meanwhile.
            with suppress(GenerationMovedError, ServiceError):
                await self._custody.keep_attempt(state, over, expected=generation)
        return live

    async def disconnect(self, connection: OAuth2Connection | None, key: str, account: str) -> bool:
        """Revokes a credential at the provider where it can be, and wipes it here in any case.

        Returns:
            Whether the provider took it back; False where it has no way for that.

        Raises:
            ServiceError: There is no credential, or the store failed. Or the provider could not
                be told, or refused: then the credential is wiped all the same.
        """
        hold = await self._custody.hold(key, account, seconds=HOLD_SECONDS)
        try:
            held = await self._custody.credential(key, account)
            if held is None or held.record.state is State.DISCONNECTED:
                raise ServiceError(Code.CREDENTIAL_NOT_FOUND)
            newest = self._storing.unsaved(key, account) or held.record
            try:
                return await self._revoke(connection, newest)
            finally:
                await self._wipe(held)
                self._storing.drop(key, account)
        finally:
            await off_loop(hold.release)

    async def _wipe(self, held: Held[Credential]) -> None:
        wiped = replace(
            held.record,
            state=State.DISCONNECTED,
            reason="",
            tokens=None,
            metadata={},
            intent=None,
            failure=None,
        )
        try:
            await self._custody.keep(wiped, expected=held.generation)
        except GenerationMovedError:  # such as sealed with another key meanwhile
            await self._wipe(found(await self._custody.credential(wiped.connection, wiped.account)))

    async def _other_half(self, state: str, attempt: Attempt) -> Live:
        """Waits for the first callback with this state: browsers send some twice."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _OTHER_HALF_SECONDS
        now: Held[Attempt] | None = await self._custody.attempt(state)
        while now is not None and now.record.progress is Progress.USED and loop.time() < end:
            await asyncio.sleep(_POLL_SECONDS)
            now = await self._custody.attempt(state)
        if now is not None and now.record.progress is Progress.DONE:
            held = await self._custody.credential(attempt.connection, attempt.account)
            if held is not None:
                return Live(credential=held.record)
        raise ServiceError(Code.AUTHORIZATION_NOT_FOUND, "It was used before.")

    async def _exchanged(
        self, connection: OAuth2Connection, attempt: Attempt, callback: Mapping[str, str]
    ) -> Live:
        code = _code(connection, callback)
        place = (connection.key, attempt.account)
        # First of all, since once the code is spent no store has to answer any more.
        hold = await self._custody.hold(*place, seconds=HOLD_SECONDS)
        try:
            old = await self._custody.credential(*place)
            asked_at = self._now()
            granted = await self._oauth.exchange(
                connection.with_variables(attempt.variables),
                code=code,
                redirect_uri=attempt.redirect_uri,
                verifier=attempt.verifier,
            )
            lacks = connection.require_refresh_token and granted.tokens.refresh_token is None
            credential = Credential(
                connection=connection.key,
                account=attempt.account,
                state=State.INCOMPLETE if lacks else State.CONNECTED,
                reason=INCOMPLETE if lacks else "",
                number=1 if old is None else old.record.number + 1,
                tokens=tokens_of(granted, asked_at),
                metadata=dict(granted.tokens.metadata) | _metadata(connection, callback),
                variables=attempt.variables,
                granted_at=asked_at,
            )
            return await self._storing.saved(credential, over=old, hold=hold)
        finally:
            await self._storing.release(*place, hold)

    async def _revoke(self, connection: OAuth2Connection | None, credential: Credential) -> bool:
        tokens = credential.tokens
        if connection is None or connection.revocation_url is None or tokens is None:
            return False
        filled = connection.with_variables(credential.variables)
        # RFC 7009 section 2.1: with the refresh token its access tokens end too.
        if tokens.refresh_token is not None:
            await self._oauth.revoke(filled, token=tokens.refresh_token, hint="refresh_token")
        else:
            await self._oauth.revoke(filled, token=tokens.access_token, hint="access_token")
        return True


def _code(connection: OAuth2Connection, callback: Mapping[str, str]) -> str:
    """Gives the code of a callback that is the provider's and says yes."""
    if connection.issuer is not None and callback.get("iss") != connection.issuer:
        # RFC 9207 section 2.4: another server's answer may have been mixed in.
        raise ServiceError(
            Code.PROVIDER_REJECTED,
            "The callback does not name the declared issuer: its code is not used.",
        )
    if "error" in callback:
        told = callback["error"]
        raise ServiceError(
            Code.PROVIDER_REJECTED,
            _REFUSALS.get(told, "The provider refused with a code that no standard defines."),
            provider_code=told if told in _REFUSALS else None,
        )
    code = callback.get(connection.code_parameter, "")
    if not code:
        raise ServiceError(Code.PROVIDER_REJECTED, "The callback brought no code.")
    return code


def _metadata(connection: OAuth2Connection, callback: Mapping[str, str]) -> dict[str, str]:
    return {
        name: callback[name]
        for name in connection.callback_metadata_fields
        if name in callback
        and callback[name].isprintable()
        and len(callback[name]) <= _METADATA_CHARACTERS
    }


def _challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()  # RFC 7636 section 4.2
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
