from __future__ import annotations

import dataclasses
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segmentstream._core.errors import SegmentStreamError
from segmentstream._core.names import SECRET_NAME_LENGTHS, SECRET_VARIABLE_PREFIX
from segmentstream.connections import ConnectionDeclarationError, SecretReference, secret_ref

patient = settings(deadline=None)  # a busy machine is no failure

secret_names = st.from_regex(r"[a-z0-9]+(-[a-z0-9]+)*", fullmatch=True).filter(
    lambda name: len(name) in SECRET_NAME_LENGTHS
)


def test_a_reference_names_the_variable_of_its_secret() -> None:
    """The reference of the specification reads the variable of the specification."""
    reference = secret_ref("google-oauth-client-id")

    assert reference.variable == "SEGMENTSTREAM_CONNECTION_SECRET_GOOGLE_OAUTH_CLIENT_ID"


@patient
@given(name=secret_names)
def test_two_names_never_share_a_variable(name: str) -> None:
    """A variable leads back to its one name, so the way from names to variables is injective."""
    words = secret_ref(name).variable.removeprefix(SECRET_VARIABLE_PREFIX)

    assert words.lower().replace("_", "-") == name


@patient
@given(name=secret_names)
def test_a_variable_is_one_that_every_shell_can_set(name: str) -> None:
    """The name of a variable holds capitals, digits and underscores only."""
    variable = secret_ref(name).variable

    assert variable.isascii()
    assert variable.isidentifier()
    assert variable == variable.upper()


@pytest.mark.parametrize("name", ["ab", "a" * 80, "2fa", "a-b", "hubspot-oauth-client-id-2"])
def test_a_name_of_the_stated_form_is_accepted(name: str) -> None:
    """Words of lowercase letters and digits, joined by hyphens, 2 to 80 characters, are a name."""
    assert secret_ref(name).name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a",
        "a" * 81,
        "-ab",
        "ab-",
        "a--b",
        "a_b",
        "Google-id",
        "a b",
        "ab\n",
        "ab\r\n",
        "größe",
        "a\N{ARABIC-INDIC DIGIT ONE}",
        "${HOME}",
        "../etc",
        None,
        7,
        b"google-id",
        ["google-id"],
    ],
)
def test_any_other_name_is_refused(name: object) -> None:
    """What is not of the stated form is refused with our error, which names the field."""
    with pytest.raises(ConnectionDeclarationError) as caught:
        secret_ref(name)  # type: ignore[arg-type]  # wrong types are part of the cases

    assert caught.value.field == "name"


def test_a_secret_given_as_a_name_is_not_repeated() -> None:
    """A value pasted where the name belongs does not appear in the error."""
    with pytest.raises(SegmentStreamError) as caught:
        secret_ref("GOCSPX-s3cr3t")

    assert "s3cr3t" not in str(caught.value) + repr(caught.value)
    assert "secret_ref(" in caught.value.remedy


def test_a_reference_is_a_value() -> None:
    """Equal names make equal references, which hash, copy and pickle alike and never change."""
    reference = secret_ref("google-oauth-client-id")

    assert reference == SecretReference(name="google-oauth-client-id")
    assert len({reference, pickle.loads(pickle.dumps(reference))}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        reference.name = "other"  # type: ignore[misc]  # the point of the test
