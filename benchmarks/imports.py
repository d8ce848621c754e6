"""What importing the SDK costs: `segmentstream.dagster` and `segmentstream.connections`."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from processes import Child, in_turn, median_ratio, run_child
from report import Benchmark, Goal

TITLE = "a. Importing the SDK"

# What the declarations of connections would be if they were pydantic models: the same fields.
_PYDANTIC_MODELS = """
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict


class SecretReference(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str


class OAuth2Connection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    key: str
    name: str
    provider: str
    authorization_url: str
    token_url: str
    client_id: SecretReference
    client_secret: SecretReference
    scopes: tuple[str, ...]
    authorization_parameters: Mapping[str, str] = {}
    token_parameters: Mapping[str, str] = {}
    client_authentication: Literal["client_secret_basic", "client_secret_post"] = (
        "client_secret_post"
    )
    pkce: bool = True
    require_refresh_token: bool = True
"""

_DAGSTER = {
    "import dagster": "import dagster",
    "import segmentstream.dagster": "import segmentstream.dagster",
}
_CONNECTIONS = {
    "import pydantic, models built": _PYDANTIC_MODELS,
    "import segmentstream.connections": "import segmentstream.connections",
}


def measure() -> Benchmark:
    """Takes the CPU time of whole processes, the start of Python included."""
    seconds = {
        **_cpu_seconds({"python alone": "pass"}, rounds=15),
        **_cpu_seconds(_DAGSTER, rounds=21),
        **_cpu_seconds(_CONNECTIONS, rounds=25),
    }
    return Benchmark(
        title=TITLE,
        method="CPU time of a process that does nothing else, the start of Python included; the "
        "two of a pair run in turn (21 rounds, and 25 for the short ones).",
        columns=("Process", "CPU"),
        rows=[(name, f"{median(taken):.3f} s") for name, taken in seconds.items()],
        goals=[
            Goal(
                name="`import segmentstream.dagster` against `import dagster`",
                figure=_ratio(seconds, *_DAGSTER),
                limit=1.05,
            ),
            Goal(
                name="`import segmentstream.connections` against `import pydantic` with models",
                figure=_ratio(seconds, *_CONNECTIONS),
                limit=1.3,
            ),
        ],
    )


def _cpu_seconds(programs: dict[str, str], *, rounds: int) -> dict[str, list[float]]:
    for program in programs.values():
        _run(program)()  # Compiles what was not compiled yet.
    children = in_turn({name: _run(program) for name, program in programs.items()}, rounds=rounds)
    return {name: [child.cpu_seconds for child in taken] for name, taken in children.items()}


def _run(program: str) -> Callable[[], Child]:
    return lambda: run_child(["-I", "-c", program])


def _ratio(seconds: dict[str, list[float]], base: str, ours: str) -> float:
    return median_ratio(seconds[ours], seconds[base])
