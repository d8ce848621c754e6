"""The private OAuth service of a workspace's connections.

Knows the declarations of `segmentstream.connections` and `_core`; never Dagster, Ibis or pandas.
"""
