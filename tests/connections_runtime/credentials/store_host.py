"""Uses a credential store in a process of its own, for `store_contract.py`.

It serves commands on its standard input, and answers each with one line:

    count NAME TIMES    adds one to the number in a record, so many times; `counted`
    read NAME           the generation of a record, 0 where there is none
    hold NAME           `held`, or `busy` where somebody else holds it
"""

from __future__ import annotations

import sys

from segmentstream_connections_runtime.credentials.base import (
    CredentialStore,
    GenerationMovedError,
    Hold,
)
from segmentstream_connections_runtime.credentials.registry import open_store


def count(store: CredentialStore, name: str, times: int) -> None:
    """Adds to the number in a record; whoever comes second reads again."""
    while times:
        found = store.read(name)
        number, generation = (int(found.content), found.generation) if found else (0, 0)
        try:
            store.write(name, str(number + 1).encode(), expected=generation)
        except GenerationMovedError:
            continue
        times -= 1


def main(url: str) -> None:
    """Serves commands until the input ends."""
    store = open_store(url)
    holds: list[Hold] = []  # for as long as the process lives
    for line in sys.stdin:
        match line.split():
            case ["count", name, times]:
                count(store, name, int(times))
                answer = "counted"
            case ["read", name]:
                found = store.read(name)
                answer = str(found.generation if found else 0)
            case ["hold", name]:
                hold = store.try_hold(name)
                answer = "held" if hold else "busy"
                holds += [hold] if hold else []
            case _:
                answer = "unknown"
        print(answer, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
