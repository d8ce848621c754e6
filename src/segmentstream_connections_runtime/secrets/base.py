"""A secret's value, and the port through which it is read; imports `connections` and the errors."""

from __future__ import annotations

from typing import NoReturn, Protocol

from segmentstream.connections import SecretReference


class Secret:
    """Holds a value that nothing shows by accident: not repr, not str, not a pickle."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        """Takes the value."""
        self._value = value

    def reveal(self) -> str:
        """Gives the value, for the one place that sends it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __reduce__(self) -> NoReturn:
        raise TypeError("A secret is not pickled.")


class SecretResolver(Protocol):
    """Reads the value of a reference."""

    def resolve(self, reference: SecretReference) -> Secret:
        """Gives the value.

        Raises:
            ServiceError: `runtime_unavailable`; the detail names the reference.
        """

    def missing(self, reference: SecretReference) -> str | None:
        """Names what is missing for a reference, such as a variable; None where it is there."""
