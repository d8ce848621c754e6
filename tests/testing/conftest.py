from __future__ import annotations

from segmentstream.testing.fixtures import fake_connection, fake_provider

__all__ = ["fake_connection", "fake_provider"]
