"""A copy counts the files that arrived, whatever the storage listed or said."""

from __future__ import annotations

from pathlib import Path

import pytest

from openpaisdk.storage.backends.local import LocalBackend
from openpaisdk.storage.transfer.executor import TransferExecutor
from openpaisdk.storage.transfer.plan import TransferPlan
from paiprotocol.errors import PaiError
from paiprotocol.transfer import pack_format
from paiprotocol.transfer.hashing import ALGORITHMS, hash_bytes, preferred_algorithm

NAMES = ["a", "b", "c"]


class Storage(LocalBackend):
    """Storage that sends packs and may leave some of the listed files out."""

    supports_packs = True
    is_local = False
    sent: tuple[str, ...] = tuple(NAMES)
    rejected: tuple[str, ...] = ()

    def fetch_pack(self, base: str, names: list[str]) -> bytes:
        algorithm = preferred_algorithm()
        out = []
        for name in self.sent:
            content = Path(base, name).read_bytes()
            record = pack_format.PackRecord(
                pack_format.FILE,
                name,
                content,
                digest=hash_bytes(content, algorithm),
                algorithm=ALGORITHMS.index(algorithm),
            )
            out += [pack_format.record_header(record), content]
        return b"".join([*out, pack_format.end_record(len(self.sent))])

    def send_pack(self, base: str, pack: bytes) -> list[tuple[str, PaiError]]:
        return [(name, PaiError(f"{name} was rejected.")) for name in self.rejected]


@pytest.fixture
def plan(tmp_path: Path) -> TransferPlan:
    (tmp_path / "source").mkdir()
    (tmp_path / "target").mkdir()
    made = TransferPlan(str(tmp_path / "source"), str(tmp_path / "target"))
    for name in NAMES:
        (tmp_path / "source" / name).write_text("12345")
        made.new.add(name, (5, 1, 0o644))
    return made


def test_listed_file_that_the_storage_does_not_send_is_an_error(plan: TransferPlan) -> None:
    source = Storage()
    source.sent = ("a", "b")
    executor = TransferExecutor(plan, source, LocalBackend())
    with pytest.raises(PaiError, match=r"did not send .*/c, which it lists"):
        executor.run()
    assert (executor.progress.files, executor.progress.bytes) == (2, 10)
    assert sorted(path.name for path in Path(plan.target).iterdir()) == ["a", "b"]


def test_rejected_files_are_not_counted(plan: TransferPlan) -> None:
    target = Storage()
    target.rejected = ("a", "c")
    executor = TransferExecutor(plan, LocalBackend(), target)
    with pytest.raises(PaiError, match="2 of 3 files could not be copied"):
        executor.run()
    assert (executor.progress.files, executor.progress.bytes) == (1, 5)


def test_all_files_are_counted_when_all_arrive(plan: TransferPlan) -> None:
    executor = TransferExecutor(plan, Storage(), LocalBackend())
    executor.run()
    assert (executor.progress.files, executor.progress.bytes) == (3, 15)
