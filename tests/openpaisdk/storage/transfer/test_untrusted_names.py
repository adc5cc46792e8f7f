"""Names listed by a storage are checked unless the caller says that they are trusted."""

from __future__ import annotations

import pytest

from openpaisdk.storage.file_info import DirectoryListing
from openpaisdk.storage.transfer.plan import TransferPlan, compare_trees
from paiprotocol.errors import PaiError


@pytest.mark.parametrize("name", ["../.ssh/authorized_keys", "..", ".", "", "a\0b", "/etc/passwd"])
def test_untrusted_names_are_rejected_local_ones_are_not(name: str) -> None:
    with pytest.raises(PaiError, match="not a valid name"):
        compare_trees(
            TransferPlan("/d", "/t"),
            iter([DirectoryListing("", {name: (3, 1, 0o600)}, [])]),
            iter([]),
        )
