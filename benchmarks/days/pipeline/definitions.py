"""The workspace whose days the benchmark of the runtime runs; `raw.events` is there before.

Two jobs of three assets, of which one takes three days to a run and the other one; and three of
one asset each over a whole year.
"""

import ibis.expr.types as ir

import segmentstream.dagster as dg
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    external_table_asset,
    warehouse_asset_metadata,
    warehouse_resources,
)

daily = dg.DailyPartitionsDefinition(start_date="2025-01-01", end_date="2026-01-01")
events = external_table_asset(
    key=["raw", "events"], partitions_def=daily, partition_by_date="event_date"
)
_DECLARED = {
    "partitions_def": daily,
    "metadata": warehouse_asset_metadata(partition_by_date="event_date"),
    "io_manager_key": WAREHOUSE_IO_MANAGER_KEY,
    "kinds": {"ibis"},
}


def _input(*key: str) -> dg.AssetIn:
    return dg.AssetIn(key=dg.AssetKey(key))


def _purchases(namespace: str, policy: dg.BackfillPolicy | None) -> dg.AssetsDefinition:
    @dg.asset(
        key=[namespace, "purchases"],
        ins={"events": _input("raw", "events")},
        backfill_policy=policy,
        **_DECLARED,
    )
    def purchases(events: ir.Table) -> ir.Table:
        return events.filter(events.quantity > 0).mutate(
            revenue_cents=events.quantity * events.price_cents
        )

    return purchases


def _later(namespace: str, policy: dg.BackfillPolicy | None) -> list[dg.AssetsDefinition]:
    @dg.asset(
        key=[namespace, "by_channel"],
        ins={"purchases": _input(namespace, "purchases")},
        backfill_policy=policy,
        **_DECLARED,
    )
    def by_channel(purchases: ir.Table) -> ir.Table:
        return purchases.group_by("event_date", "channel").agg(
            purchases=purchases.count(), revenue_cents=purchases.revenue_cents.sum()
        )

    @dg.asset(
        key=[namespace, "revenue"],
        ins={"by_channel": _input(namespace, "by_channel")},
        backfill_policy=policy,
        **_DECLARED,
    )
    def revenue(by_channel: ir.Table) -> ir.Table:
        return by_channel.group_by("event_date").agg(
            purchases=by_channel.purchases.sum(), revenue_cents=by_channel.revenue_cents.sum()
        )

    return [by_channel, revenue]


_POLICIES = {
    "in_threes": dg.BackfillPolicy.multi_run(3),
    "one_by_one": None,
    "year_at_once": dg.BackfillPolicy.single_run(),
    "year_in_thirties": dg.BackfillPolicy.multi_run(30),
    "year_one_by_one": None,
}
_ASSETS = {
    name: [_purchases(name, policy), *([] if name.startswith("year") else _later(name, policy))]
    for name, policy in _POLICIES.items()
}

defs = dg.Definitions(
    assets=[events, *(asset for assets in _ASSETS.values() for asset in assets)],
    jobs=[
        *(dg.define_asset_job(name, selection=assets) for name, assets in _ASSETS.items()),
        # For Dagster's own command; the runtime takes no job's executor.
        dg.define_asset_job(
            "in_process",
            selection=_ASSETS["one_by_one"],
            executor_def=dg.in_process_executor,
        ),
    ],
    resources=warehouse_resources(),
)
