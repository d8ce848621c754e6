"""What a workspace writes in `connections/connections.py`: logins declared as data.

Importing it reads nothing, opens nothing and resolves no secret.
"""

from __future__ import annotations

from segmentstream._core.errors import ConnectionDeclarationError
from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference, secret_ref

__all__ = ["ConnectionDeclarationError", "OAuth2Connection", "SecretReference", "secret_ref"]
