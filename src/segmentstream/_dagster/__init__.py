"""The adapter between Dagster's assets and the warehouse: Dagster, `_warehouse` and `_core`."""
