"""Pack cache: unchanged files are neither read nor uploaded again."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openpaisdk.jobs.sources import SourceArchive
from openpaisdk.jobs.sources import collect as packed
from paicluster.api.v2 import source_patches
from paiprotocol.errors import InvalidParameters

LARGEST = 1 << 30


def collect(*arguments, min_file_age_ns: int = 0) -> SourceArchive:
    """Collect a folder and save its manifest, as after an upload."""
    found = packed(*arguments, min_file_age_ns=min_file_age_ns)
    found.save_manifest()
    return found


def tar(sources: SourceArchive) -> bytes:
    return b"".join(sources.chunks())


def apply_patch(sources: SourceArchive, base: bytes, folder: Path) -> bytes:
    """Apply a patch as the cluster does."""
    patch = sources.patch()
    assert patch is not None
    (folder / "patch").write_bytes(b"".join(patch.chunks()))
    assert (folder / "patch").stat().st_size == patch.size
    (folder / "base").write_bytes(base)
    digest = source_patches.apply(folder / "patch", folder / "base", folder / "made", LARGEST)
    assert digest == sources.sha256
    return (folder / "made").read_bytes()


def make_folder(root: Path) -> Path:
    root.mkdir()
    for i in range(8):
        (root / f"{i}.bin").write_bytes(os.urandom(5000 + i))
    (root / "sub").mkdir()
    (root / "sub/link").symlink_to("../1.bin")
    return root


def test_unchanged_folder_is_not_read_again(tmp_path, monkeypatch) -> None:
    root = make_folder(tmp_path / "w")
    first = collect(str(root))
    monkeypatch.setattr("openpaisdk.jobs.sources._content", lambda m: pytest.fail(f"{m.name} was read"))
    again = collect(str(root))
    assert (again.sha256, again.size, again.count) == (first.sha256, first.size, first.count)
    assert again.patch() is None


@pytest.mark.parametrize("change", ["content", "mode", "new", "gone", "link", "touch"])
def test_every_kind_of_change_is_detected(tmp_path, change: str) -> None:
    root = make_folder(tmp_path / "w")
    before = tar(collect(str(root)))
    time.sleep(0.002)  # file system timestamps have a coarse resolution
    if change == "content":
        (root / "3.bin").write_bytes(os.urandom(5003))
    elif change == "mode":
        (root / "3.bin").chmod(0o755)
    elif change == "new":
        (root / "33.bin").write_bytes(b"new")
    elif change == "gone":
        (root / "3.bin").unlink()
    elif change == "link":
        (root / "sub/link").unlink()
        (root / "sub/link").symlink_to("../2.bin")
    else:
        os.utime(root / "3.bin", (1, 1))
    after = collect(str(root))
    assert apply_patch(after, before, tmp_path) == tar(after) != before


def test_patch_has_only_the_changed_file(tmp_path) -> None:
    root = make_folder(tmp_path / "w")
    collect(str(root))
    (root / "3.bin").write_bytes(b"small")
    patch = collect(str(root)).patch()
    assert patch.size < 4000 and [line.split()[0] for line, _ in patch.steps].count(b"copy") == 2


def test_young_file_is_read_again(tmp_path) -> None:
    root = make_folder(tmp_path / "w")
    collect(str(root), min_file_age_ns=10**12)
    assert collect(str(root), min_file_age_ns=10**12).patch() is None, "all of it is read again"


def test_each_selection_of_paths_has_its_own_manifest(tmp_path, monkeypatch) -> None:
    root = make_folder(tmp_path / "w")
    monkeypatch.chdir(root)
    one, other = collect(str(root), ["1.bin"]), collect(str(root), ["2.bin"])
    assert one.sha256 != other.sha256 and collect(str(root), ["1.bin"]).sha256 == one.sha256


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    before=st.dictionaries(st.sampled_from("abcdefgh"), st.binary(max_size=2000), min_size=1),
    after=st.dictionaries(st.sampled_from("abcdefgh"), st.binary(max_size=2000), min_size=1),
)
def test_patch_produces_the_new_archive(tmp_path_factory, before: dict, after: dict) -> None:
    folder = tmp_path_factory.mktemp("case")
    root = folder / "w"
    root.mkdir()
    for name, content in before.items():
        (root / name).write_bytes(content)
    old = tar(collect(str(root)))
    for name in set(before) | set(after):
        if name not in after:
            (root / name).unlink()
        elif after[name] != before.get(name):
            (root / name).write_bytes(after[name])
    new = collect(str(root))
    if new.patch() is not None:
        assert apply_patch(new, old, folder) == tar(new)


@pytest.mark.parametrize(
    "patch",
    [
        b"copy 0 99\n",
        b"copy 0\n",
        b"copy -1 2\n",
        b"data 5\nabc",
        b"nonsense\n",
        b"data 1",
        b"copy 0 99999999999999999\n",
    ],
)
def test_invalid_patch_is_rejected(tmp_path, patch: bytes) -> None:
    (tmp_path / "p").write_bytes(patch)
    (tmp_path / "b").write_bytes(b"0123456789")
    with pytest.raises(InvalidParameters):
        source_patches.apply(tmp_path / "p", tmp_path / "b", tmp_path / "m", LARGEST)


def test_patch_size_is_limited(tmp_path) -> None:
    (tmp_path / "p").write_bytes(b"copy 0 10\n" + b"data 10\n0123456789" * 20)
    (tmp_path / "b").write_bytes(b"0123456789")
    with pytest.raises(InvalidParameters, match="Sources may have"):
        source_patches.apply(tmp_path / "p", tmp_path / "b", tmp_path / "m", 100)


def test_patch_cannot_multiply_its_base(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"x" * 1000)
    (tmp_path / "p").write_bytes(b"copy 0 600\ncopy 600 400\n")
    source_patches.apply(tmp_path / "p", tmp_path / "b", tmp_path / "m", LARGEST)
    assert (tmp_path / "m").read_bytes() == b"x" * 1000
    (tmp_path / "p").write_bytes(b"copy 0 1000\n" * 1000)
    with pytest.raises(InvalidParameters, match="may copy at most as much as its base archive has"):
        source_patches.apply(tmp_path / "p", tmp_path / "b", tmp_path / "m", LARGEST)
    assert (tmp_path / "m").stat().st_size <= 1000
