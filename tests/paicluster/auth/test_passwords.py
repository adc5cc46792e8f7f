"""Password hashing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paicluster.auth.passwords import hash_password, verify_password


@settings(max_examples=5, deadline=None)
@given(st.text(), st.text())
def test_only_the_same_password_verifies(password: str, other: str) -> None:
    stored = hash_password(password)
    assert verify_password(password, stored)
    assert verify_password(other, stored) == (other == password)


def test_hash_is_salted_and_hides_the_password() -> None:
    first, second = hash_password("correct horse"), hash_password("correct horse")
    assert first != second
    assert "horse" not in first


def test_hash_string_carries_its_parameters() -> None:
    assert hash_password("x").startswith("scrypt$16384,8,1$")
    # Hashed with other parameters, as an earlier or later version would.
    weaker = "scrypt$1024,8,1$AAAAAAAAAAAAAAAAAAAAAA==$MAQg4JGLPMRqJFBEKf8fQ+4nhhombI56iCi1UYs3wDs="
    assert verify_password("secret", weaker) is True
    assert verify_password("Secret", weaker) is False


@pytest.mark.parametrize(
    "broken", ["", "scrypt", "md5$1,2,3$AA==$AA==", "scrypt$3,8,1$AA==$AA==", "scrypt$a,b,c$!$!"]
)
def test_malformed_hash_matches_nothing(broken: str) -> None:
    assert verify_password("secret", broken) is False
