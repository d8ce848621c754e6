"""Live clients of declared connections, for pipelines; imports `_core`, `connections` and httpx.

httpx is loaded by the first client, and what gives tokens by the first request.
"""
