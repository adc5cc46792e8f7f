"""Transfer of one open file to another, part by part, verified."""

from __future__ import annotations

from openpaisdk.storage.backends.base import damaged_error
from openpaisdk.storage.backends.hdfs_checksum import ChecksumComparison
from paiprotocol.errors import Conflict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.storage.backends.base import Chunks, SourceFile, TargetFile


def transfer_file(
    source: SourceFile,
    target: TargetFile,
    display_path: str,
    on_part: Callable[[int], object] | None = None,
) -> None:
    """Write what is missing of the target, and replace it. ``on_part`` gets the size of each part written."""
    comparison = ChecksumComparison(source, target)

    def chunks(offset: int, length: int) -> Chunks:
        return comparison.observe(offset, source.chunks(offset, length))

    try:
        for offset, length in target.missing_ranges(source.max_part_bytes):
            target.put(offset, length, lambda at=offset, length=length: chunks(at, length))  # type: ignore[misc]
            comparison.confirm(offset)
            if on_part is not None:
                on_part(length)
        source.check()
        if comparison.matches(source.size) is False:
            target.abandon()
            raise damaged_error(display_path)
        try:
            target.finish(source.size)
        except Conflict:
            target.abandon()
            raise
    finally:
        target.close()
