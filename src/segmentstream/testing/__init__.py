"""What users test their assets with: a provider that needs no account and no network.

A test asks `FakeProvider` for a connection, and tells it what its API answers; the fixtures of
`segmentstream.testing.fixtures` do the same for pytest. Importing this package loads the standard
library and declarations only.
"""

from __future__ import annotations

from segmentstream.testing._exchanges import ProviderAnswer, ProviderRequest
from segmentstream.testing._fake import FakeProvider

__all__ = ["FakeProvider", "ProviderAnswer", "ProviderRequest"]
