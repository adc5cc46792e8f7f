"""`pairuntime sources`: an archive that does not stay in the folder, or is hostile, is a sentence."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from pairuntime.task import fetch_sources
from support.hostile_tar import MEMBER_KINDS, block, write_endless_header


def fetch(archive: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    work.mkdir()
    monkeypatch.chdir(work)
    return fetch_sources.main([archive.as_uri()])


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_sources_are_unpacked(tmp_path: Path, monkeypatch, capsys, mode: str) -> None:
    with tarfile.open(tmp_path / "sources", mode) as archive:
        for name in ("a", "d/b"):
            member = tarfile.TarInfo(name)
            member.size = 70_000
            archive.addfile(member, io.BytesIO(name.encode() * 70_000))
    assert fetch(tmp_path / "sources", tmp_path / "work", monkeypatch) == 0
    assert "Fetched 2 source files" in capsys.readouterr().err
    assert (tmp_path / "work/d/b").read_bytes() == (b"d/b" * 70_000)[:70_000]


def hostile_archives(folder: Path) -> dict[str, Path]:
    found = {f"header {kind!r}": write_endless_header(folder / f"{kind!r}", kind) for kind in MEMBER_KINDS}
    for name, data in {
        "negative": block(b"a", b"0", -512) + bytes(1024),
        "deep": deep(),
        "outside": block(b"../a", b"0", 0) + bytes(1024),
        "none": b"no archive",
    }.items():
        found[name] = folder / name
        found[name].write_bytes(data)
    return found


def deep() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("d/" * 1900 + "x"))
    return packed.getvalue()


def test_hostile_archives_are_reported(tmp_path: Path, monkeypatch, capsys) -> None:
    for number, (name, archive) in enumerate(hostile_archives(tmp_path).items()):
        assert fetch(archive, tmp_path / f"work{number}", monkeypatch) == 1, name
        assert "The sources of the job could not be fetched" in capsys.readouterr().err
