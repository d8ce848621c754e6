"""Puts faults back into a copy of the service, and shows that the tests notice each of them.

    .venv/bin/python tests/connections_runtime/mutations.py

Run by hand. For each fault the repository's `src` and `tests` are copied to a temporary folder, the
fault is written into the copy, and the tests of the service run there until the first one fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SERVICE = Path("src/segmentstream_connections_runtime")
_TESTS = Path("tests/connections_runtime")
_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """Is a fault.

    Attributes:
        name: What goes wrong.
        file: The module it is put into.
        before: The right code.
        after: The wrong code.
        tests: Which tests should notice it.
    """

    name: str
    file: str
    before: str
    after: str
    tests: str = "."


MUTATIONS = [
    Mutation(
        name="a redirect is followed",
        file="transport.py",
        before="follow_redirects=False",
        after="follow_redirects=True",
    ),
    Mutation(
        name="Basic credentials are raw",
        file="oauth.py",
        before="parts = [quote_plus(part) for part in parts]",
        after="parts = list(parts)",
    ),
    Mutation(
        name="scopes have to be exactly those asked for",
        file="oauth.py",
        before="    return Granted(tokens=tokens, scopes=scopes, missing_scopes=missing)",
        after="    if scopes != connection.scopes:\n"
        "        raise ServiceError(Code.TOKEN_RESPONSE_INVALID)\n"
        "    return Granted(tokens=tokens, scopes=scopes, missing_scopes=missing)",
    ),
    Mutation(
        name="each caller sends a request of its own",
        file="service.py",
        before="task = self._under_way.get(identity)",
        after="task = None",
    ),
    Mutation(
        name="a caller that hangs up ends the request",
        file="service.py",
        before="await asyncio.shield(task)",
        after="await task",
    ),
    Mutation(
        name="tokens may hold anything",
        file="tokens.py",
        before='_TOKEN = re.compile(r"[\\x21-\\x7e]+")',
        after='_TOKEN = re.compile(r"(?s).+")',
    ),
    Mutation(
        name="an error beside tokens is overlooked",
        file="tokens.py",
        before="told is not None\n        or status",
        after="status",
    ),
    Mutation(
        name="any address is connected to",
        file="transport.py",
        before="if not self._allows_private and any(",
        after="if False and any(",
    ),
    Mutation(
        name="certificates are not checked",
        file="transport.py",
        before="    if ca_file:\n",
        after="    context.check_hostname = False\n"
        "    context.verify_mode = ssl.CERT_NONE\n"
        "    if ca_file:\n",
    ),
    Mutation(
        name="only single reads have a deadline",
        file="http.py",
        before="asyncio.timeout(self._seconds)",
        after="asyncio.timeout(None)",
    ),
    Mutation(
        name="connections are used again",
        file="transport.py",
        before='            "Connection": "close",\n',
        after="",
    ),
    Mutation(
        name="the log says what an exception says",
        file="app.py",
        before='"fault": type(error).__qualname__',
        after='"fault": repr(error)',
    ),
    Mutation(
        name="a body of any size is read",
        file="endpoints.py",
        before="if len(body) > REQUEST_BYTES:",
        after="if False:",
    ),
    Mutation(
        name="what somebody else has renewed meanwhile is not looked at",
        file="refreshing.py",
        before="                if self._freshness.serves(connection, held.record, want):\n"
        "                    return Live(credential=held.record)\n                self",
        after="                self",
        tests="test_renewal_rules.py",
    ),
    Mutation(
        name="a renewal is not written down before it is sent",
        file="refreshing.py",
        before="replace(old, intent=intent), expected",
        after="old, expected",
        tests="test_renewal_rules.py",
    ),
    Mutation(
        name="a lost answer is sent again blindly",
        file="refreshing.py",
        before="is_safe = not error.was_sent or (is_unknown and is_repeatable)",
        after="is_safe = not error.was_sent or is_unknown",
        tests="test_renewal_rules.py",
    ),
    Mutation(
        name="a failure is not remembered",
        file="refreshing.py",
        before="        if not 0 < left",
        after="        if left or not 0 < left",
        tests="test_renewal_rules.py",
    ),
    Mutation(
        name="a token that is refused is always renewed",
        file="freshness.py",
        before="return 0 <= self._now() - tokens.obtained_at < _YOUNG_SECONDS",
        after="return False",
        tests="test_renewal_rules.py",
    ),
    Mutation(
        name="a newer grant is overwritten",
        file="storing.py",
        before="    if there.granted_at != old.granted_at:\n        return False\n",
        after="",
        tests="test_renewal_rules.py",
    ),
    Mutation(
        name="anybody completes an authorization",
        file="authorizing.py",
        before="or not hmac.compare_digest(held.record.binding_sha256, _digest(binding))",
        after="or False",
        tests="test_authorizing.py",
    ),
    Mutation(
        name="the issuer is not looked at",
        file="authorizing.py",
        before="if connection.issuer is not None and",
        after="if False and",
        tests="test_authorizing.py",
    ),
    Mutation(
        name="an authorization never ends",
        file="authorizing.py",
        before="or held.record.expires_at < self._now()",
        after="or False",
        tests="test_authorizing.py",
    ),
    Mutation(
        name="a record opens anywhere",
        file="credentials/sealing.py",
        before="key_id.encode(), belonging_to.encode()))",
        after="key_id.encode()))",
        tests="credentials/test_keys.py",
    ),
    Mutation(
        name="a write does not compare generations",
        file="credentials/tables.py",
        before="        .where(_RECORDS.c.name == name, _RECORDS.c.generation == expected)\n        .values",
        after="        .where(_RECORDS.c.name == name)\n        .values",
        tests="credentials/test_sqlite.py",
    ),
]


def main(names: Sequence[str]) -> int:
    """Tries the mutations whose name holds one of the words, or all; 0 when all are noticed."""
    tried = [each for each in MUTATIONS if not names or any(word in each.name for word in names)]
    unnoticed = [each.name for each in tried if not _is_noticed(each)]
    print(f"{len(tried)} tried, {len(unnoticed)} unnoticed {unnoticed or ''}")
    return 1 if unnoticed or not tried else 0


def _is_noticed(mutation: Mutation) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests"):
            shutil.copytree(_ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(_ROOT / "pyproject.toml", copy)
        file = copy / _SERVICE / mutation.file
        text = file.read_text()
        if text.count(mutation.before) != 1:
            raise SystemExit(f"{mutation.name}: its code is not in {mutation.file} once.")
        file.write_text(text.replace(mutation.before, mutation.after))
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-x",
                "-q",
                "-p",
                "no:cacheprovider",
                str(_TESTS / mutation.tests),
            ],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy / "src")},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    failed = [line for line in ended.stdout.splitlines() if line.startswith("FAILED")]
    print(f"{mutation.name}: {failed[0][:160] if failed else 'NOT NOTICED'}", flush=True)
    return ended.returncode == 1 and bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
