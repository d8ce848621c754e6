"""The one broker of a process: made on first use, and anew after a fork; imports `sharing`.

Which one it is, variables say: see `settings`.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from segmentstream._clients.access import Broker
from segmentstream._clients.sharing import SharedAccess


class Sharing:
    """Keeps the broker of one process, and what it gave, by connection and account."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._accounts: dict[tuple[str, str], SharedAccess] = {}

    def account(self, key: str, account: str) -> SharedAccess:
        """Gives what the clients of an account share."""
        with self._lock:
            place = (key, account)
            if place not in self._accounts:
                self._accounts[place] = SharedAccess(self._broker, key, account, clock=time.time)
            return self._accounts[place]

    def close(self) -> None:
        """Lets go of what the broker holds open."""
        self._broker.close()


# By process id. A child of a fork has its parent's memory: also the locks that other threads of
# the parent held at that moment, which nobody in the child would ever release, and a broker whose
# threads and sockets stayed behind.
_processes: dict[int, Sharing] = {}
_making: dict[int, threading.Lock] = {}


def shared_access(key: str, account: str) -> SharedAccess:
    """Gives what the clients of an account share in this process.

    Raises:
        ConnectionAccessError: The broker that variables name cannot work.
    """
    process = os.getpid()
    sharing = _processes.get(process)
    if sharing is None:
        with _making.setdefault(process, threading.Lock()):
            sharing = _processes.get(process)
            if sharing is None:
                sharing = _processes[process] = Sharing(_broker())
                atexit.register(_close, process)
    return sharing.account(key, account)


@contextmanager
def using(broker: Broker) -> Iterator[None]:
    """Lets this process use another broker meanwhile, as tests do; closes it in the end."""
    process = os.getpid()
    before = _processes.pop(process, None)
    _processes[process] = Sharing(broker)
    try:
        yield
    finally:
        _processes.pop(process).close()
        if before is not None:
            _processes[process] = before


def _close(process: int) -> None:
    if process == os.getpid() and process in _processes:
        _processes.pop(process).close()


def _broker() -> Broker:
    from segmentstream._clients.settings import ClientSettings  # noqa: PLC0415 - on first use

    settings = ClientSettings.from_environ(os.environ)
    if settings.service is None:
        from segmentstream._clients.local import LocalBroker  # noqa: PLC0415 - needs the runtime

        return LocalBroker.from_environ(os.environ, start=Path.cwd())
    from segmentstream._clients.remote import ServiceBroker  # noqa: PLC0415 - needs httpx

    return ServiceBroker(settings.service)
