"""A workspace whose assets note that they were called, and wait while a gate is closed."""

import os
import threading
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import ibis
import ibis.expr.types as ir

import segmentstream.dagster as dg
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WarehouseResource,
    warehouse_asset_metadata,
    warehouse_resources,
)

_CALLS = Path(os.environ.get("SHOP_CALLS", "calls.txt"))
_GATE = Path(os.environ.get("SHOP_GATE", "closed"))
_FAILING = os.environ.get("SHOP_FAILING", "").split()

daily = dg.DailyPartitionsDefinition(start_date="2024-05-01", end_date="2024-06-01")
later = dg.DailyPartitionsDefinition(start_date="2024-05-05", end_date="2024-06-01")
endless = dg.DailyPartitionsDefinition(start_date="2024-05-01")
years = dg.DailyPartitionsDefinition(start_date="2021-01-01", end_date="2024-01-01")
BY_DAY = warehouse_asset_metadata(partition_by_date="day")


if os.environ.get("SHOP_THREAD"):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
if os.environ.get("SHOP_PRINTS"):
    print("the workspace prints")


def _called(name: str, days: Sequence[str]) -> None:
    if os.environ.get("SHOP_PRINTS"):
        print("an asset prints")
    with _CALLS.open("a") as calls:
        calls.write(f"{name} {os.getpid()} {','.join(days)}\n")
    # A gate for all, and one for each asset and for each first day.
    gates = [_GATE, _GATE.with_name(name), *(_GATE.with_name(day) for day in days[:1])]
    while any(gate.exists() for gate in gates):
        time.sleep(0.02)


def _rows(days: Sequence[str]) -> ir.Table:
    once = set(days) & set(os.environ.get("SHOP_FAILING_ONCE", "").split())
    told = [line.split(" ") for line in _CALLS.read_text().splitlines()] if once else []
    if [name for name, _, called in told if name == "retried" and called in once] == ["retried"]:
        raise ValueError("not the first time")
    if failing := set(days) & set(_FAILING):
        raise ValueError(f"no rows on {min(failing)}")
    return ibis.memtable(
        [{"day": date.fromisoformat(day), "visits": 1} for day in days],
        schema={"day": "date", "visits": "int64"},
    )


def _daily(
    name: str,
    partitions: dg.DailyPartitionsDefinition,
    *,
    backfill_policy: dg.BackfillPolicy | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
    deps: Sequence[str] = (),
) -> dg.AssetsDefinition:
    @dg.asset(
        key=["shop", name],
        partitions_def=partitions,
        metadata=BY_DAY,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        backfill_policy=backfill_policy,
        retry_policy=retry_policy,
        pool=pool,
        deps=[["shop", each] for each in deps],
    )
    def made(context: dg.AssetExecutionContext) -> ir.Table:
        _called(name, context.partition_keys)
        return _rows(context.partition_keys)

    return made


_AT_ONCE = dg.BackfillPolicy.single_run()
one_by_one = _daily(
    "one_by_one", daily, backfill_policy=_AT_ONCE if os.environ.get("SHOP_AT_ONCE") else None
)
in_fours = _daily("in_fours", daily, backfill_policy=dg.BackfillPolicy.multi_run(4))
at_once = _daily("at_once", daily, backfill_policy=_AT_ONCE)
retried = _daily(
    "retried", daily, retry_policy=dg.RetryPolicy(max_retries=50), deps=["before_retried"]
)
before_retried = _daily("before_retried", daily)
pooled = _daily("pooled", daily, pool="shop")
starts_later = _daily("starts_later", later)
ends_never = _daily("ends_never", endless)
three_years = _daily("three_years", years, backfill_policy=_AT_ONCE)


def _step(number: int) -> dg.AssetsDefinition:
    before = [["shop", f"step_{number - 1}"]] if number > 1 else []

    @dg.asset(key=["shop", f"step_{number}"], partitions_def=daily, deps=before)
    def made(context: dg.AssetExecutionContext) -> None:
        _called(f"step_{number}", context.partition_keys)

    return made


_STEPS = [_step(number) for number in range(1, 8)]


@dg.asset(
    key=["shop", "balance"],
    partitions_def=daily,
    metadata=BY_DAY,
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    deps=[
        dg.AssetDep(
            ["shop", "balance"],
            partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1),
        )
    ],
)
def balance(context: dg.AssetExecutionContext) -> ir.Table:
    _called("balance", context.partition_keys)
    return _rows(context.partition_keys)


@dg.asset(key=["shop", "lookup"], io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
def lookup() -> ir.Table:
    _called("lookup", [])
    return _rows(["2024-05-01"])


@dg.asset(key=["shop", "endless_query"], io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
def endless_query(warehouse: WarehouseResource) -> ir.Table:
    _called("endless_query", [])
    numbers = ibis.range(0, 3_000_000_000).unnest().name("n").as_table()
    warehouse.execute(numbers.agg(total=(numbers.n * numbers.n % 7).sum()))
    return _rows(["2024-05-01"])


_ASSETS = [
    one_by_one, in_fours, at_once, retried, pooled, starts_later, ends_never, balance, lookup, endless_query,
    three_years, before_retried,
]  # fmt: skip
_JOBS = [dg.define_asset_job(each.key.path[-1], selection=[each]) for each in _ASSETS]
# No run can have it: it is refused when it is asked for, and a code server loads nothing beside it.
_REFUSED = [dg.define_asset_job("mixed", selection=[one_by_one, starts_later])]
if os.environ.get("SHOP_IS_SOUND"):
    _REFUSED.clear()

_SEVERAL = [
    dg.define_asset_job("both_retried", selection=[before_retried, retried]),
    dg.define_asset_job("seven_steps", selection=_STEPS),
]


@dg.schedule(
    job_name="lookup", cron_schedule="* * * * *", default_status=dg.DefaultScheduleStatus.RUNNING
)
def every_minute() -> dg.RunRequest:
    return dg.RunRequest()


# These are due once a year, so that a test never sees two ticks.
@dg.schedule(job_name="lookup", cron_schedule="0 0 1 1 *")
def each_year(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    print("the schedule prints")
    return dg.RunRequest(tags={"year": str(context.scheduled_execution_time.year)})


@dg.schedule(job_name="one_by_one", cron_schedule="0 0 1 1 *")
def two_days() -> list[dg.RunRequest]:
    return [
        dg.RunRequest(run_key=day, partition_key=day, tags={"day": day})
        for day in ("2024-05-03", "2024-05-04")
    ]


@dg.schedule(job_name="lookup", cron_schedule="0 0 1 1 *")
def configured() -> dg.RunRequest:
    return dg.RunRequest(run_config={"execution": {"config": {"in_process": {}}}})


@dg.schedule(job_name="lookup", cron_schedule="0 0 1 1 *")
def failing() -> dg.RunRequest:
    raise ValueError("no such source")


one_by_one_schedule = dg.build_schedule_from_partitioned_job(_JOBS[0])


defs = dg.Definitions(
    assets=[*_ASSETS, *_STEPS],
    jobs=[*_JOBS, *_SEVERAL, *_REFUSED],
    schedules=[every_minute, each_year, two_days, configured, failing, one_by_one_schedule],
    resources=warehouse_resources(),
)
