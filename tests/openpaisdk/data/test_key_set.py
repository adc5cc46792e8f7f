"""Keys of very many records, in little memory."""

import sys

from openpaisdk.data.key_set import KeySet

COUNT = 200_000


def test_every_key_is_found_and_no_other() -> None:
    keys = KeySet()
    assert all(keys.add(f"folder/{number}") for number in range(COUNT))
    assert not any(keys.add(f"folder/{number}") for number in range(0, COUNT, 7))
    assert all(f"folder/{number}" in keys for number in range(0, COUNT, 11))
    assert not any(f"other/{number}" in keys for number in range(0, COUNT, 11))


def test_key_takes_few_bytes() -> None:
    keys = KeySet()
    for number in range(COUNT):
        keys.add(str(number))
    # A set of the same hashes has more than 60 each.
    assert sum(map(sys.getsizeof, keys._arrays)) < 9 * COUNT
    assert len(keys._recent) < COUNT // 5
