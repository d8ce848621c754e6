"""What BigQuery would say of SQL, as far as Google's own parser and analyzer can tell."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Self

_HOST = Path(__file__).with_name("judge_host.py")
_PYTHON = Path(__file__).parents[2] / ".venv-zetasql" / "bin" / "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a statement or a script.

    Attributes:
        parsed: The kinds of its statements, such as `merge`; empty where the syntax is wrong.
        error: Why it is refused, None if it is not.
        analyzed: Whether names and types were checked too, of every statement.
    """

    parsed: tuple[str, ...]
    error: str | None
    analyzed: bool


class Judge:
    """Judges SQL in a process that starts with the first question and ends with the context."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._host: subprocess.Popen[str] | None = None

    @staticmethod
    def is_installed() -> bool:
        """Whether the environment of the process exists."""
        return _PYTHON.exists()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._host:
            with self._host:  # closes its input, which ends it, and waits
                self._host = None

    def check(self, sql: str, tables: Mapping[str, Mapping[str, str]] | None = None) -> Verdict:
        """Judges a statement or a script.

        Args:
            sql: What BigQuery would be sent.
            tables: The tables that exist: by `project.dataset.table`, the columns' types by name,
                such as `{"a": "INT64", "s": "STRUCT<b NUMERIC(12, 2)>"}`. Where it is left out only
                the syntax is judged.
        """
        answer = self._ask({"sql": sql, "tables": tables})
        return Verdict(
            parsed=tuple(answer["parsed"]), error=answer["error"], analyzed=answer["analyzed"]
        )

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._host = self._host or subprocess.Popen(
                [_PYTHON, _HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert self._host.stdin
            assert self._host.stdout
            self._host.stdin.write(json.dumps(request) + "\n")
            self._host.stdin.flush()
            answer: dict[str, Any] = json.loads(self._host.stdout.readline())
        return answer
