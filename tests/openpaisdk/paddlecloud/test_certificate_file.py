"""Name and expiry of a certificate's file."""

import time

import pytest

from openpaisdk.paddlecloud.certificate_file import CertificateFile
from support.certificates import CertificateAuthority


@pytest.mark.parametrize("days", [-1, 1, 365, 365 * 40])
def test_expiry_is_read_from_the_file(tmp_path, days: int) -> None:
    """After 2049 certificates write four digits of the year."""
    cert, _ = CertificateAuthority(tmp_path).issue(tmp_path, "alice", days=days)
    assert CertificateFile(str(cert)).expires == pytest.approx(time.time() + days * 86400, abs=60)


@pytest.mark.parametrize("user", ["alice", "user1@gmail.com", "zoë"])
@pytest.mark.parametrize("organization", ["", "o" * 64])
def test_user_is_the_common_name(tmp_path, user: str, organization: str) -> None:
    """With more than 127 bytes, the length of the subject has more than one byte."""
    cert, _ = CertificateAuthority(tmp_path).issue(tmp_path, user, organizations=[organization] * 2)
    assert CertificateFile(str(cert)).user == user


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_file_that_is_no_certificate_has_neither(tmp_path, text: str) -> None:
    (tmp_path / "f").write_text(text)
    for name in ("f", "nothing"):
        file = CertificateFile(str(tmp_path / name))
        assert (file.expires, file.user) == (None, None)
