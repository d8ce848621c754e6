"""The port through which records are kept: named, sealed, counted; imports the standard library.

A store knows nothing of tokens or keys: it keeps bytes under a name, and counts how often they
were written. All of its methods block; whoever has a loop calls them from a thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol


class StoreError(Exception):
    """Says that the store could not do what it was asked, and what to do about it.

    Its text names no content, and of an address neither user nor password.
    """


class GenerationMovedError(StoreError):
    """Says that somebody else wrote the record since it was read; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Is a record as it is kept.

    Attributes:
        content: What was written, byte for byte.
        generation: How often the record was written: 1 after the first time, one more each time.
    """

    content: bytes = field(repr=False)
    generation: int


class Hold(Protocol):
    """Is a record held against other processes; it ends with the process at the latest."""

    def release(self) -> None:
        """Lets the record go; a second time does nothing. Never raises."""


class CredentialStore(ABC):
    """Keeps records by name.

    A name is at most 255 characters of lowercase letters, digits and `_ - . /`.

    Attributes:
        hold_proves_end: Whether holding a record proves that its last holder has ended. A store
            that is reached over a network can lose a hold whose holder goes on.
    """

    hold_proves_end: bool

    @abstractmethod
    def read(self, name: str) -> Record | None:
        """Gives a record; None where there is none of that name.

        Raises:
            StoreError: The store cannot be reached or read; this is never told as None.
        """

    @abstractmethod
    def write(
        self, name: str, content: bytes, *, expected: int, expires_at: float | None = None
    ) -> int:
        """Writes a record if it is still as it was read, whole or not at all.

        When it returns, the record is durable.

        Args:
            name: Its name.
            content: Up to 60,000 bytes.
            expected: The generation that was read; 0 where there was no record.
            expires_at: From when on the record may be removed, in seconds since 1970; a store
                may keep it longer.

        Returns:
            Its new generation.

        Raises:
            GenerationMovedError: It is no longer as it was read.
            StoreError: The store cannot be reached or written. Unless the error says so, the
                record may have been written: read it again.
        """

    @abstractmethod
    def delete(self, name: str, *, expected: int) -> None:
        """Removes a record if it is still as it was read.

        Raises:
            GenerationMovedError: It is no longer as it was read, or gone.
            StoreError: The store cannot be reached or written.
        """

    @abstractmethod
    def names(self, prefix: str) -> list[str]:
        """Lists the records whose names begin with that text, sorted.

        Raises:
            StoreError: The store cannot be reached or read.
        """

    @abstractmethod
    def try_hold(self, name: str) -> Hold | None:
        """Holds a name against other threads, processes and hosts; None where somebody holds it.

        The record need not exist. A hold is no transaction: `write` still compares generations.

        Raises:
            StoreError: The store cannot be reached.
        """

    @abstractmethod
    def check(self) -> None:
        """Makes sure that the store can be read and written, without changing a record.

        Raises:
            StoreError: It cannot.
        """

    @abstractmethod
    def close(self) -> None:
        """Lets go of what the store holds open; it may be used again after."""
