"""The other sides of the service in its benchmark: a slow provider, and callers elsewhere."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from processes import HERE, answer

PROVIDER_SECONDS = 2.0
_TOKENS = json.dumps({"access_token": "a", "token_type": "Bearer", "expires_in": 3600}).encode()
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
_START = {
    "redirectUri": "https://app.example.com/callback",
    "state": "s" * 43,
    "codeChallenge": "c" * 43,
}


async def provide(folder: Path) -> None:
    """Answers every token request after `PROVIDER_SECONDS`, over TLS; says where it listens."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from connections_runtime.authority import make_authority

    context = make_authority(folder).server_context("localhost")
    whole = _ANSWER + b"Content-Length: %d\r\n\r\n" % len(_TOKENS) + _TOKENS

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(_length(head))
        await asyncio.sleep(PROVIDER_SECONDS)
        writer.write(whole)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context, backlog=512)
    answer(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


async def load(port: int, requests: int, connections: int) -> dict[str, float]:
    """Asks for authorizations over connections that are kept, one request at a time on each."""
    request = _request("authorization/start", _START)
    seconds: list[float] = []

    async def caller(share: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(share):
            started = time.perf_counter()
            writer.write(request)
            await _read(reader)
            seconds.append(time.perf_counter() - started)
        writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(caller(requests // connections) for _ in range(connections)))
    wall = time.perf_counter() - started
    seconds.sort()
    return {"requests": len(seconds), "wall": wall, "p99": seconds[len(seconds) * 99 // 100]}


async def refresh(port: int, callers: int, rounds: int) -> list[float]:
    """Refreshes as many different grants at once; says how long each round took in all."""

    async def caller(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_request("token/refresh", {"refreshToken": f"token-{number}"}))
        await _read(reader)
        writer.close()

    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        await asyncio.gather(*map(caller, range(callers)))
        taken.append(time.perf_counter() - started)
    return taken


def _request(action: str, body: dict[str, str]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST /internal/v1/connections/it/{action} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def _read(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    body = await reader.readexactly(_length(head))
    if not head.startswith(b"HTTP/1.1 200 "):
        sys.exit(f"The service refused: {body.decode()}")


def _length(head: bytes) -> int:
    [line] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return int(line.partition(b":")[2])


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["provide", "load", "refresh"])
    parser.add_argument("parameters", nargs="*")
    asked = parser.parse_args(arguments)
    if asked.what == "provide":
        asyncio.run(provide(Path(asked.parameters[0])))
    else:
        work = load if asked.what == "load" else refresh
        answer(asyncio.run(work(*map(int, asked.parameters))))


if __name__ == "__main__":
    main()
