"""Where the keys come from: a variable, or a file that is made on first use; imports `sealing`."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from segmentstream_connections_runtime.credentials.sealing import KeyRing, KeyRingError

_PRIVATE_FOLDER = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Keys(Protocol):
    """Gives the key ring, and reads it anew when a record asks for a key that it lacks."""

    def ring(self) -> KeyRing:
        """Gives the ring.

        Raises:
            KeyRingError: There is none, or it cannot be used.
        """

    def reread(self) -> KeyRing:
        """Gives the ring as it is now where it is kept: another process may have added a key."""


class GivenKeys:
    """Is a ring that was given as text, such as in a variable."""

    def __init__(self, text: str) -> None:
        self._ring = KeyRing.from_text(text)

    def ring(self) -> KeyRing:
        """As `Keys.ring`."""
        return self._ring

    reread = ring


class KeyFile:
    """Is a ring in a file that only its owner can read.

    The file is written whole or not at all. It is made when it is first asked for, and never
    where records exist that it could not open: `may_make` says so.
    """

    def __init__(self, path: Path, *, may_make: Callable[[], bool] = lambda: False) -> None:
        self.path = path
        self._may_make = may_make
        self._ring: KeyRing | None = None
        self._read: tuple[int, int] | None = None

    def ring(self) -> KeyRing:
        """As `Keys.ring`; anew where the file has changed, so that no old key is sealed with."""
        if self._ring is None or self._version() not in {self._read, None}:
            self._ring = self.reread()
        return self._ring

    def reread(self) -> KeyRing:
        """As `Keys.reread`."""
        self._read = self._version()
        try:
            text = self.path.read_text()
            if self.path.stat().st_mode & _OTHERS:
                self.path.chmod(0o600)
        except FileNotFoundError:
            return self._made()
        except OSError as error:
            raise KeyRingError(
                f"The credential keys in {self.path} cannot be read ({error.strerror}). Give the "
                "file to the user that runs this."
            ) from None
        self._ring = KeyRing.from_text(text)
        return self._ring

    def write(self, ring: KeyRing) -> None:
        """Writes the ring in place of the one that is there.

        Raises:
            KeyRingError: It cannot be written; the old one is as it was.
        """
        self._put(ring, over=True)
        self._ring = ring

    def _version(self) -> tuple[int, int] | None:
        """Tells one content of the file from another; None where there is none to see."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return (found.st_ino, found.st_mtime_ns)

    def _made(self) -> KeyRing:
        if not self._may_make():
            raise KeyRingError(
                f"There are no credential keys in {self.path}, and none are made where records or "
                "other machines may need the old ones. Restore that file, name another in "
                "SEGMENTSTREAM_CREDENTIAL_KEYS_FILE, or give the keys in "
                "SEGMENTSTREAM_CREDENTIAL_KEYS (`segmentstream connections rotate-key --print-new` "
                "makes new ones); nothing was changed."
            )
        self._put(KeyRing.new(), over=False)
        self._ring = KeyRing.from_text(self.path.read_text())  # perhaps another process's
        return self._ring

    def _put(self, ring: KeyRing, *, over: bool) -> None:
        try:
            folder = self.path.resolve().parent
            folder.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_FOLDER)
            descriptor, name = tempfile.mkstemp(dir=folder)  # readable by its owner alone
            try:
                with os.fdopen(descriptor, "w") as file:
                    file.write(ring.to_text() + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                if over:
                    Path(name).replace(self.path.resolve())
                    return
                try:
                    os.link(name, self.path.resolve())
                except FileExistsError:
                    return
            finally:
                Path(name).unlink(missing_ok=True)
        except OSError as error:
            raise KeyRingError(
                f"The credential keys cannot be written to {self.path} ({error.strerror}). Name "
                "a file that can be in SEGMENTSTREAM_CREDENTIAL_KEYS_FILE."
            ) from None
