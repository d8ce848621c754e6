"""Renews the pinned, hashed sets beside this file; run by `make constraints`.

Only names, versions and hashes are written, never where a file was downloaded.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
COMMON = [
    "--universal",
    "--python-version=3.12",
    "--generate-hashes",
    "--no-header",
    "--no-strip-extras",
    "--quiet",
    "--upgrade",
]


def main() -> None:
    """Resolves each set anew."""
    compile_set(
        "dev.txt",
        [
            "pyproject.toml",
            "--extra=duckdb",
            "--extra=bigquery",
            "--extra=connections",
            "--extra=secret-manager",
            "--extra=cloud-run",
            "--group=dev",
        ],
    )
    uv = re.search(r"^uv==\S+", (HERE / "dev.txt").read_text(), re.MULTILINE)
    if uv is None:
        sys.exit("constraints/dev.txt does not pin uv, which installs the others.")
    compile_set("uv.txt", ["-"], stdin=uv.group())
    for name in ("peers", "emulator", "zetasql", "connections", "connections-google"):
        compile_set(f"{name}.txt", [f"constraints/{name}.in"])


def compile_set(name: str, sources: list[str], stdin: str | None = None) -> None:
    """Writes one set with uv, which is on the environment's PATH beside this Python."""
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "compile", *sources, *COMMON, f"--output-file=constraints/{name}"]
    subprocess.run(command, cwd=ROOT, input=stdin, text=True, check=True)


if __name__ == "__main__":
    main()
