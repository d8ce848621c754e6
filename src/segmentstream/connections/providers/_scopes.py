"""What the declarations of several providers do with scopes; imports nothing of ours.

What is no list of strings is left as it is: the declaration refuses it by the name of its field.
"""

from __future__ import annotations

from collections.abc import Sequence


def with_scopes(scopes: Sequence[str], *needed: str) -> Sequence[str]:
    """Adds scopes at the end where they are missing."""
    if isinstance(scopes, str) or not isinstance(scopes, Sequence):
        return scopes
    return [*scopes, *(scope for scope in dict.fromkeys(needed) if scope not in scopes)]


def texts_of(scopes: object) -> list[str]:
    """Lists the strings among what was given as scopes."""
    items = scopes if isinstance(scopes, Sequence) else ()
    return [item for item in items if isinstance(item, str)]
