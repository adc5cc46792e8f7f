"""A storage lists names; whoever compares trees without saying otherwise does not trust them."""

from __future__ import annotations

import pytest

from openpaisdk.errors import PaiError
from openpaisdk.storage.file_info import DirectoryListing
from openpaisdk.storage.transfer.plan import TransferPlan, compare_trees


@pytest.mark.parametrize("name", ["../.ssh/authorized_keys", "..", ".", "", "a\0b", "/etc/passwd"])
def test_a_name_that_leads_elsewhere_is_refused_unless_it_is_our_own(name: str) -> None:
    with pytest.raises(PaiError, match="not a valid name"):
        compare_trees(
            TransferPlan("/d", "/t"),
            iter([DirectoryListing("", {name: (3, 1, 0o600)}, [])]),
            iter([]),
            hdfs_names=False,
        )
