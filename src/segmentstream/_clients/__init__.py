"""Live clients of declared connections, for pipelines; imports `_core`, `connections` and httpx."""
