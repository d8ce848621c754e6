"""The environment of the tools that the benchmarks compare with; the standard library only."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence

from processes import HERE, PROJECT_PYTHON, run_child

_ROOT = HERE.parent
_ENVIRONMENT = _ROOT / ".venv-peers"
_PINS = _ROOT / "constraints" / "peers.txt"
_MADE_FROM = _ENVIRONMENT / "made-from"

PEERS_PYTHON = _ENVIRONMENT / "bin" / "python"


def ensure_peers() -> None:
    """Makes the environment from its pinned, hashed set when it is missing or the set changed."""
    wanted = hashlib.sha256(_PINS.read_bytes()).hexdigest()
    if _MADE_FROM.is_file() and _MADE_FROM.read_text() == wanted and PEERS_PYTHON.exists():
        return
    print("Making .venv-peers from constraints/peers.txt (about 80 packages, once)", flush=True)
    _uv("venv", "--clear", "--python", str(PROJECT_PYTHON), str(_ENVIRONMENT))
    _uv("pip", "sync", "--python", str(PEERS_PYTHON), "--require-hashes", str(_PINS))
    _MADE_FROM.write_text(wanted)


def versions_of_peers(packages: Sequence[str]) -> dict[str, str]:
    """Gives the versions installed beside the peers, by package."""
    program = (
        "import json, sys; from importlib.metadata import version; "
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    )
    versions: dict[str, str] = run_child(["-c", program, *packages], python=PEERS_PYTHON).answer
    return versions


def _uv(*arguments: str) -> None:
    uv = PROJECT_PYTHON.with_name("uv")
    subprocess.run([str(uv), "--quiet", *arguments], cwd=_ROOT, check=True)
