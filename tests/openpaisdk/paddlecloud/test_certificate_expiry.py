"""The expiry of a certificate's file."""

import time

import pytest

from openpaisdk.paddlecloud.certificate_expiry import expiry_of
from support.certificates import Authority


@pytest.mark.parametrize("days", [-1, 1, 365, 365 * 40])
def test_expiry_is_read_from_the_file(tmp_path, days: int) -> None:
    """After 2049 certificates write four digits of the year."""
    cert, _ = Authority(tmp_path).issue(tmp_path, "alice", days=days)
    assert expiry_of(str(cert)) == pytest.approx(time.time() + days * 86400, abs=60)


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_file_that_is_no_certificate_has_no_expiry(tmp_path, text: str) -> None:
    (tmp_path / "f").write_text(text)
    assert expiry_of(str(tmp_path / "f")) is None
    assert expiry_of(str(tmp_path / "nothing")) is None
