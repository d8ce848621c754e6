"""Names of secrets that stand in declarations in place of their values; imports `_core` only."""

from __future__ import annotations

from dataclasses import dataclass

from segmentstream._core.errors import ConnectionDeclarationError
from segmentstream._core.names import SECRET_NAME, SECRET_NAME_LENGTHS, SECRET_VARIABLE_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference:
    """Points to a secret by name and never holds its value; `secret_ref` makes one.

    Attributes:
        name: 2 to 80 characters: words of lowercase letters and digits, joined by hyphens.

    Raises:
        ConnectionDeclarationError: The name is not of that form.
    """

    name: str

    def __post_init__(self) -> None:
        if not _is_secret_name(self.name):
            # The text leaves out what was given: it may be the secret itself, pasted here.
            raise ConnectionDeclarationError(
                "The name of a secret reference is not 2 to 80 characters of lowercase words "
                "(letters and digits) joined by hyphens.",
                'Write a name such as secret_ref("google-oauth-client-id"); the value of the '
                "secret belongs in the variable of that name, never in the declaration.",
                field="name",
            )

    @property
    def variable(self) -> str:
        """Names the environment variable that holds the secret where variables hold secrets.

        Two different names never share a variable.
        """
        return SECRET_VARIABLE_PREFIX + self.name.upper().replace("-", "_")


def secret_ref(name: str) -> SecretReference:
    """Points to a secret by its name, such as `google-oauth-client-id`; reads nothing.

    Args:
        name: 2 to 80 characters: words of lowercase letters and digits, joined by hyphens.

    Raises:
        ConnectionDeclarationError: The name is not of that form.
    """
    return SecretReference(name=name)


def _is_secret_name(name: object) -> bool:
    return (
        isinstance(name, str)
        and len(name) in SECRET_NAME_LENGTHS
        and SECRET_NAME.fullmatch(name) is not None
    )
