"""Runs every benchmark, prints what it finds and writes results.md; run by `make bench`.

The process that measures imports the standard library only (processes.py says why).
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from importlib.metadata import version

import against_pandas
import code_location
import connections_service
import day_replace
import imports
import peers
from processes import HERE, WORK
from report import as_markdown, as_text

import bigquery
import runtime

_RESULTS = HERE / "results.md"
_OWN_PACKAGES = (
    "dagster",
    "dagster-postgres",
    "ibis-framework",
    "duckdb",
    "google-cloud-bigquery",
    "pandas",
    "pydantic",
    "sqlglot",
)
_PEER_PACKAGES = (
    "dagster",
    "dagster-duckdb-pandas",
    "dagster-gcp-pandas",
    "duckdb",
    "fastapi",
    "google-cloud-bigquery",
    "pandas",
)

# Why a goal is missed, by its name; shown only where it is.
_REASONS = {
    "Replacing a day in 36,500,000 rows against the SQL transaction": (
        "the engine adds 10 to 15 ms of its own to each write, whatever the size of the table or "
        "the day: compiling the Ibis expression and writing its SQL take about half, the look-ups "
        "that its refusals need (table, columns, views) the other half. The transaction compared "
        "with takes only 60 to 100 ms, and the ratio falls as tables and days grow."
    ),
    "A replaced day on BigQuery, beyond an empty run": (
        "the MERGE itself takes much of it on the server of the tests (the row of Google's "
        "client), and most of the rest is what Dagster does for an input, two resources and a "
        "stored output."
    ),
    "Requests of 60 days in one run, beyond those of one day": (
        "a MERGE tells how many rows it inserted, and not for which dates; Dagster is told the "
        "rows of every day, so a write of several days ends with one query that counts them by "
        "date. That is two requests for any number of days, and none for one."
    ),
    "CPU time of an `authorization/start` (0.5 ms are 2,000 a second and core)": (
        "a tenth of it is the service's own: reading the request, writing the address and the log "
        "line. Most is h11, which reads HTTP in Python; httptools takes a third less in all, but "
        "under uvicorn it puts no bound on the head of a request."
    ),
    "Wall time of one day, without bytecode, against the published SDK elsewhere": (
        "Python compiles all of Dagster, SQLAlchemy and Ibis anew; an image that is built with its "
        "bytecode has no such start."
    ),
    "Wall time of 7 days as 3 runs, without bytecode, against the published SDK elsewhere": (
        "Python compiles all of Dagster, SQLAlchemy and Ibis anew; an image that is built with its "
        "bytecode has no such start."
    ),
    "200 refreshes at once of a provider that takes 2 s": (
        "every refresh has a TLS connection of its own. Beyond the 2 s it is CPU time of "
        "the service, the provider and the callers, which share the cores with all else."
    ),
}


def main() -> None:
    """Makes the peers' environment, runs the benchmarks in turn and writes the results."""
    started = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    try:
        peers.ensure_peers()
        machine = _machine()
        benchmarks = []
        for module in (
            imports,
            day_replace,
            against_pandas,
            code_location,
            bigquery,
            connections_service,
            runtime,
        ):
            print(f"\n{module.TITLE}", flush=True)
            benchmarks.append(module.measure())
            print(as_text(benchmarks[-1]), flush=True)
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
    _RESULTS.write_text(as_markdown(benchmarks, machine, _REASONS))
    missed = sum(not goal.is_met for benchmark in benchmarks for goal in benchmark.goals)
    print(
        f"Wrote benchmarks/{_RESULTS.name} after {time.monotonic() - started:.0f} s; "
        f"{missed or 'no'} goal{'' if missed == 1 else 's'} missed."
    )


def _machine() -> dict[str, str]:
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    own = {package: version(package) for package in _OWN_PACKAGES}
    return {
        "Cores": str(os.cpu_count()),
        "Memory": f"{memory_bytes / 2**30:.0f} GiB",
        "System": f"{platform.system()} {platform.machine()}",
        "Load before the start": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        "Versions": _listed(own),
        "Versions of the peers": _listed(peers.versions_of_peers(_PEER_PACKAGES)),
    }


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{package} {number}" for package, number in versions.items())


if __name__ == "__main__":
    sys.exit(main())
