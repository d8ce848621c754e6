"""What a client says where there is no token, whoever said so first; imports `_core` only."""

from __future__ import annotations

from segmentstream._core.errors import ConnectionAccessError, ReauthorizationRequiredError

_FOR_A_PERSON = frozenset({"oauth_reauthorization_required", "credential_not_found"})


def refusal(
    key: str,
    account: str,
    *,
    code: str,
    message: str,
    retryable: bool,
    retry_after_seconds: int | None = None,
) -> ConnectionAccessError:
    """Makes the error for an outcome of the connections service.

    Args:
        key: The key of the connection.
        account: Which account of it.
        code: The code of the outcome.
        message: What happened, in the service's own words.
        retryable: Whether the same call may succeed later.
        retry_after_seconds: How long to wait before that.
    """
    if code in _FOR_A_PERSON:
        option = "" if account == "default" else f" --account {account}"
        return ReauthorizationRequiredError(
            f"There is no token for connection {key!r}, account {account!r}: {message}",
            f"Run `segmentstream connect {key}{option}`, which a person has to do.",
            connection=key,
            code=code,
        )
    if retryable:
        after = "" if retry_after_seconds is None else f" in {retry_after_seconds} seconds"
        remedy = (
            f"Try again{after or ' later'}; `segmentstream connections show {key}` tells its state."
        )
    else:
        remedy = "Correct what it says; `segmentstream doctor` checks the rest."
    return ConnectionAccessError(
        f"There is no token for connection {key!r} now ({code}): {message}",
        remedy,
        connection=key,
        code=code,
        retryable=retryable,
        retry_after_seconds=retry_after_seconds,
    )
