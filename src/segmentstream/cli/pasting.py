"""Reads an address that a person pastes into the terminal, without showing it.

Imports the standard library only.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_MOST_BYTES = 64 * 1024
_PART_BYTES = 4096
_BACKSPACES = (0x08, 0x7F)
_ENDS = (0x04, 0x0A, 0x0D)  # end of transmission, and both ends of a line


async def pasted_line() -> str:
    """Gives a line of standard input; it ends early where that ends."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def give(text: str) -> None:
        if not line.done():
            line.set_result(text)

    def read() -> None:
        text = _line(descriptor)
        with suppress(RuntimeError):  # nobody waits any more, and the loop is closed
            loop.call_soon_threadsafe(give, text)

    with _hidden(descriptor):
        # A daemon, and past the buffers of sys.stdin: it must not keep the process from ending.
        threading.Thread(target=read, daemon=True).start()
        return await line


@contextmanager
def _hidden(descriptor: int) -> Iterator[None]:
    """Shows nothing of what is typed, and takes lines longer than the 4095 bytes of a terminal."""
    if not os.isatty(descriptor) or sys.platform == "win32":
        yield
        return
    import termios  # noqa: PLC0415 - not on Windows
    import tty  # noqa: PLC0415

    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


def _line(descriptor: int) -> str:
    line = bytearray()
    with suppress(OSError):
        while len(line) < _MOST_BYTES and (part := os.read(descriptor, _PART_BYTES)):
            for byte in part:
                if byte in _ENDS:
                    return line.decode("utf-8", "replace")
                if byte in _BACKSPACES:
                    del line[-1:]
                else:
                    line.append(byte)
    return line.decode("utf-8", "replace")
