"""The command `inspect`: what is wrong with a workspace's definitions, and what they consist of.

Imports Dagster, `_manifest`, `_dagster`, `_warehouse` and `_core`; nothing else of the runtime.
"""
