"""Transfer errors: one clear sentence, a non-zero status, the old target unchanged."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from openpaisdk.cli.storage.storage import remove
from openpaisdk.storage.backends.local import LocalBackend
from openpaisdk.storage.catalog import StorageOpener
from openpaisdk.storage.location import parse_location
from openpaisdk.storage.transfer.copy import CopyOperation, to_stream
from paiprotocol.errors import PaiError, UsageError
from support.cli_user import CommandResult, until
from support.faulty_proxy import FaultyProxy
from support.small_disk import mounted
from support.storage_fixture import StorageWorkspace

LARGE = os.urandom(1 << 20) * 40


def far(workspace: StorageWorkspace) -> str:
    return workspace.remote.replace("pai://team/", "pai://far/")


def refused(done: CommandResult, *words: str) -> None:
    """Assert one sentence (and perhaps a hint), a status, no traceback."""
    assert done.status in (1, 2), done
    said = [line for line in done.err.splitlines() if line.startswith("pai: ")]
    assert len(said) == 1 and "Traceback" not in done.err, done
    for word in words:
        assert word in done.err, done


def leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if "pai-part" in name]


def begun(workspace: StorageWorkspace, *words: str) -> subprocess.Popen[str]:
    return workspace.person.begin(*words)


def ended(process: subprocess.Popen[str]) -> CommandResult:
    out, err = process.communicate(timeout=90)
    return CommandResult(process.returncode, out, err)


def test_wildcard_that_no_shell_expands_is_explained(workspace: StorageWorkspace) -> None:
    workspace.write("d/a.csv", b"a")
    workspace.ok("copy", "d", f"{workspace.remote}/d")
    for words in (("copy", f"{workspace.remote}/d/*.csv", "."), ("remove", f"{workspace.remote}/d/?.csv")):
        refused(workspace.pai(*words), "there is no such file or folder", "* and ? are not expanded")
    done = workspace.pai("copy", "*.csv", f"{workspace.remote}/d")
    refused(done, "*.csv: there is no such file or folder.\n")
    assert "expanded" not in done.err, done


def test_missing_source_is_reported(workspace: StorageWorkspace) -> None:
    refused(workspace.pai("copy", "nothing", workspace.remote), "nothing: there is no such file or folder")
    refused(workspace.pai("copy", f"{workspace.remote}/nothing", "."), "there is no such file or folder")
    refused(workspace.pai("sync", f"{workspace.remote}/nothing", "."), "there is no such file or folder")
    refused(workspace.pai("getinfo", f"{workspace.remote}/nothing"), "there is no such file or folder")
    refused(workspace.pai("remove", f"{workspace.remote}/nothing"), "there is no such file or folder")
    refused(workspace.pai("listdir", "pai://team/nope/x"), "no storage called 'nope'")
    refused(workspace.pai("listdir", "pai://nobody/0/x"), "no cluster called 'nobody'")
    refused(workspace.pai("getinfo", "pai://team"), "must name a cluster and a storage")
    refused(workspace.pai("listdir", "s3://bucket/x"), "s3://")
    refused(workspace.pai("listdir", "hdfs://elsewhere:9000/x"), "No configured storage has the address")


def test_closed_stdin_is_an_error(workspace: StorageWorkspace) -> None:
    workspace.write("f", b"kept")
    workspace.ok("copy", "f", f"{workspace.remote}/f")
    refused(workspace.person.sh(f"pai copy - {workspace.remote}/f <&-"), "Standard input is closed")
    refused(workspace.person.sh(f"pai copy {workspace.remote}/f - >&-"), "Standard output is closed")
    assert workspace.read("f") == b"kept"


def test_empty_non_blocking_pipe_has_not_ended(workspace: StorageWorkspace) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    copy = subprocess.Popen(
        ["pai", "copy", "-", f"{workspace.remote}/f"],
        stdin=reading,
        cwd=workspace.local,
        env=workspace.person.env(),
    )
    os.close(reading)
    for word in (b"one ", b"two"):
        os.write(writing, word)
        until(lambda: _unread(writing) == 0)  # it has been read, so the next read finds nothing
    os.close(writing)
    assert copy.wait(60) == 0
    assert workspace.read("f") == b"one two"


def _unread(pipe: int) -> int:
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


def test_names_invalid_in_hdfs_are_rejected_before_the_transfer(workspace: StorageWorkspace) -> None:
    workspace.write("d/fine")
    workspace.write("d/at 10:30")
    refused(workspace.pai("copy", "d", workspace.remote), "'at 10:30'", "colon")
    refused(workspace.pai("copy", "d/fine", f"{workspace.remote}/a:b"), "colon")
    refused(workspace.pai("makedir", f"{workspace.remote}/a:b"), "colon")
    refused(workspace.pai("copy", "d/fine", f"{workspace.remote}/a:b/c"), "colon")
    refused(workspace.pai("copy", "d/fine", f"{workspace.remote}/../x"), "'..'")
    assert workspace.names() == []


def test_folder_is_not_copied_into_itself(workspace: StorageWorkspace) -> None:
    workspace.write("d/f")
    refused(workspace.pai("copy", "d", "d/inside"), "lies inside")
    refused(workspace.pai("copy", "d", "d"), "lies inside")
    workspace.ok("copy", "d", workspace.remote)
    refused(workspace.pai("copy", f"{workspace.remote}/d", f"{workspace.remote}/d/inside"), "lies inside")
    refused(workspace.pai("sync", f"{workspace.remote}/d", f"{workspace.remote}/d"), "are the same")
    assert os.listdir(workspace.local / "d") == ["f"] and workspace.names() == ["d/f"]


def test_storage_is_recognized_by_all_its_names(workspace: StorageWorkspace) -> None:
    """By ``0`` and by its name, by pai:// and by hdfs://, by its address on this machine."""
    workspace.write("d/e/f")
    workspace.ok("copy", "d", workspace.remote)
    of_hdfs = f"hdfs://{workspace.url.partition('://')[2]}{workspace.path}"
    for other in (workspace.remote.replace("/0/", "/home/"), of_hdfs):
        refused(workspace.pai("copy", f"{workspace.remote}/d", f"{other}/d/inside"), "lies inside")
        refused(workspace.pai("sync", f"{workspace.remote}/d", f"{other}/d"), "are the same")
    assert workspace.names() == ["d/e/f"]
    workspace.ok("add-storage-cluster", "-a", "disks", "--type", "mount", "--path", str(workspace.local))
    refused(workspace.pai("copy", "pai://disks/0/d", "d/inside"), "lies inside")
    refused(workspace.pai("sync", "d", "pai://disks/mount/d"), "are the same")
    assert os.listdir(workspace.local / "d") == ["e"]


def test_sync_does_not_delete_its_source(workspace: StorageWorkspace) -> None:
    workspace.write("d/e/f")
    workspace.ok("copy", "d", workspace.remote)
    refused(workspace.pai("sync", "--delete", "d/e", "d"), "d/e lies inside d", "--delete would remove")
    refused(
        workspace.pai("sync", "--delete", f"{workspace.remote}/d/e", f"{workspace.remote}/d"),
        "--delete would remove",
    )
    assert os.listdir(workspace.local / "d") == ["e"] and workspace.names() == ["d/e/f"]
    workspace.ok("sync", "d/e", "d")
    assert sorted(os.listdir(workspace.local / "d")) == ["e", "f"]


def test_copy_below_a_file_is_rejected(workspace: StorageWorkspace) -> None:
    workspace.write("f")
    workspace.write("d/f")
    workspace.write("large", b"x" * 20_000_000)
    workspace.ok("copy", "f", f"{workspace.remote}/f")
    for source in ("f", "d", "large"):
        for way in ([], ["--http"]):
            done = workspace.pai("copy", *way, source, f"{workspace.remote}/f/below")
            assert done.status == 1
            assert "/f is a file and not a folder." in done.err


def test_trailing_dot_after_a_file_is_rejected(workspace: StorageWorkspace) -> None:
    workspace.write("f")
    workspace.ok("makedir", f"{workspace.remote}/there")
    workspace.ok("copy", "f", f"{workspace.remote}/f")
    for source in ("f/.", f"{workspace.remote}/f/."):
        for target in (f"{workspace.remote}/new", f"{workspace.remote}/there", "new"):
            done = workspace.pai("copy", source, target)
            assert (done.status, "is a file, but a trailing slash" in done.err) == (2, True)
    assert workspace.names() == ["f"] and not (workspace.local / "new").exists()


def test_file_and_folder_do_not_replace_each_other(workspace: StorageWorkspace) -> None:
    workspace.write("d/x/f")
    workspace.write("x", b"file")
    workspace.ok("copy", "d", f"{workspace.remote}/d")
    refused(workspace.pai("copy", "d", f"{workspace.remote}/d/x/f"), "is a file")
    workspace.write("e/x", b"file")
    refused(workspace.pai("sync", "e", f"{workspace.remote}/d"), "would have to replace")
    refused(workspace.pai("makedir", f"{workspace.remote}/d/x/f"), "is a file")
    assert workspace.names() == ["d/x/f"]


def test_remove_protects_home_and_current_folder(
    workspace: StorageWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, where nothing is really deleted."""
    gone: list[str] = []
    monkeypatch.setattr(LocalBackend, "delete", lambda _, path: gone.append(path))
    folder = workspace.write("d/e/f").parent
    (folder / "up").symlink_to("/")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(workspace.write("homes/me/f").parent))
    for path, why in {
        "/": "is a system folder",
        "//": "is a system folder",
        "/usr": "is a system folder",
        "/etc/": "is a system folder",
        ".": "is the current folder",
        "..": "is the current folder",
        str(folder.parent): "is the current folder",
        "~": "is your home folder",
        str(workspace.local / "homes"): "is your home folder",
    }.items():
        with pytest.raises(UsageError, match=f"{why}.* and is not removed"):
            remove(["-y", path])
    remove(["-y", "f", "up"])
    assert gone == [str(folder / "f"), str(folder / "up")]


def test_remove_protects_home_on_a_mounted_storage(
    workspace: StorageWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, where nothing is really deleted."""
    gone: list[str] = []
    monkeypatch.setattr(LocalBackend, "delete", lambda _, path: gone.append(path))
    home = workspace.person.home
    monkeypatch.setenv("HOME", str(home))
    workspace.ok("add-storage-cluster", "-a", "above", "--type", "mount", "--path", str(home.parent))
    with pytest.raises(UsageError, match="is your home folder or contains it, and is not removed"):
        remove(["-y", f"pai://above/mount/{home.name}"])
    (home.parent / "other").mkdir()
    remove(["-y", "pai://above/mount/other"])
    assert gone == ["/other"]


def test_sync_delete_protects_the_home_folder(
    workspace: StorageWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, home = workspace.write("d/f").parent, workspace.write("homes/me/mine").parent
    monkeypatch.setenv("HOME", str(home))
    for target in (home, home.parent, "/"):
        with pytest.raises(UsageError, match="is your home folder or contains it: --delete would"):
            CopyOperation.plan(
                StorageOpener(),
                parse_location(str(source)),
                parse_location(str(target)),
                sync=True,
                delete=True,
            )
    CopyOperation.plan(
        StorageOpener(), parse_location(str(source)), parse_location(str(home)), sync=True
    ).run()
    assert sorted(os.listdir(home)) == ["f", "mine"]


def test_storage_root_cannot_be_removed(workspace: StorageWorkspace) -> None:
    for root in ("pai://team/0/", "pai://team/0//", "pai://team/0/."):
        refused(workspace.pai("remove", "-y", root), "cannot be removed")


def test_file_growing_during_upload_is_detected(workspace: StorageWorkspace, proxy: FaultyProxy) -> None:
    workspace.write("target", b"old")
    workspace.ok("copy", "target", f"{workspace.remote}/f")
    grows = workspace.write("grows", LARGE)
    proxy.rate = 20e6
    process = begun(workspace, "copy", "--http", "grows", f"{far(workspace)}/f")
    until(lambda: proxy.carried > 2 << 20)
    with grows.open("ab") as f:
        f.write(b"more")
    refused(ended(process), "grows grew while it was copied", "the target is unchanged")
    assert workspace.read("f") == b"old" and workspace.names() == ["f"]


def test_file_changing_during_output_to_a_stream_is_reported(workspace: StorageWorkspace) -> None:
    grows = workspace.write("grows", LARGE)

    def write(_: object) -> None:
        with grows.open("ab") as f:
            f.write(b"more")

    with pytest.raises(PaiError, match="grows changed while it was copied: do not use the output"):
        to_stream(StorageOpener(), parse_location(str(grows)), write)


def test_file_deleted_during_upload_is_detected(workspace: StorageWorkspace, proxy: FaultyProxy) -> None:
    goes = workspace.write("goes", LARGE)
    proxy.rate = 20e6
    process = begun(workspace, "copy", "--http", "goes", f"{far(workspace)}/f")
    until(lambda: proxy.carried > 2 << 20)
    goes.unlink()
    refused(ended(process), "goes vanished while it was copied")
    assert workspace.names() == []


@pytest.mark.slow
def test_file_changing_during_download_is_detected(workspace: StorageWorkspace, proxy: FaultyProxy) -> None:
    workspace.write("one", LARGE)
    workspace.write("two", LARGE[:-5])
    workspace.ok("copy", "one", f"{workspace.remote}/f")
    kept = workspace.write("kept", b"kept")
    proxy.rate = 20e6
    process = begun(workspace, "copy", "--http", f"{far(workspace)}/f", "kept")
    until(lambda: proxy.carried > 2 << 20)
    workspace.ok("copy", "two", f"{workspace.remote}/f")
    refused(ended(process), "while it was copied")
    assert kept.read_bytes() == b"kept" and leftovers(workspace.local) == []


def test_upload_survives_lost_connections(workspace: StorageWorkspace, proxy: FaultyProxy) -> None:
    workspace.write("f", LARGE)
    proxy.request_limit, proxy.cuts = 3 << 20, 4
    workspace.ok("copy", "--http", "f", f"{far(workspace)}/f")
    assert proxy.cuts == 0
    assert workspace.read("f") == LARGE


def test_download_resumes_after_a_lost_connection(workspace: StorageWorkspace, proxy: FaultyProxy) -> None:
    workspace.write("f", LARGE)
    workspace.ok("copy", "f", f"{workspace.remote}/f")
    proxy.rate = 20e6
    process = begun(workspace, "copy", "--http", f"{far(workspace)}/f", "back")
    until(lambda: proxy.carried > 2 << 20)
    proxy.cut()
    proxy.rate = 0
    assert ended(process).status == 0
    assert (workspace.local / "back").read_bytes() == LARGE and leftovers(workspace.local) == []


@pytest.mark.slow
def test_permanent_connection_loss_is_reported_and_next_run_resumes(
    workspace: StorageWorkspace, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAI_TRANSFER_RETRY_S", "1")
    workspace.write("f", LARGE)
    workspace.write("old", b"old")
    workspace.ok("copy", "old", f"{workspace.remote}/f")
    proxy.rate = 60e6
    process = begun(workspace, "copy", "--http", "f", f"{far(workspace)}/f")
    until(lambda: proxy.carried > 34 << 20)
    proxy.close()
    refused(ended(process), "does not respond", "it resumes the copy")
    assert workspace.read("f") == b"old"
    again = FaultyProxy(workspace.url)
    try:
        book = workspace.person.home / ".openpai/clusters.yaml"
        book.write_text(book.read_text().replace(proxy.url, again.url))
        workspace.ok("copy", "--http", "f", f"{far(workspace)}/f")
        assert workspace.read("f") == LARGE
        assert again.carried < 36 << 20
    finally:
        again.close()


@pytest.mark.slow
def test_truncated_responses_are_detected(workspace: StorageWorkspace, proxy: FaultyProxy) -> None:
    workspace.write("f", LARGE)
    workspace.write("d/small", b"x" * 300_000)
    workspace.ok("copy", "f", f"{workspace.remote}/f")
    workspace.ok("copy", "d", f"{workspace.remote}/d")
    kept = workspace.write("kept", b"kept")
    proxy.response_limit = 200_000
    short = {"PAI_TRANSFER_RETRY_S": "1"}
    refused(
        workspace.pai("copy", "--http", f"{far(workspace)}/f", "kept", env=short),
        "in the middle of a response",
    )
    assert kept.read_bytes() == b"kept"
    refused(workspace.pai("copy", "--http", f"{far(workspace)}/d", "back", env=short))
    assert not (workspace.local / "back/small").exists()


@pytest.mark.slow
def test_interrupted_download_resumes(workspace: StorageWorkspace, proxy: FaultyProxy) -> None:
    workspace.write("f", LARGE)
    workspace.ok("copy", "f", f"{workspace.remote}/f")
    proxy.rate = 30e6
    process = begun(workspace, "copy", "--http", f"{far(workspace)}/f", "back")
    until(lambda: len(journal(workspace.local)) >= 1)
    process.kill()
    process.wait()
    assert not (workspace.local / "back").exists() and len(leftovers(workspace.local)) == 2
    proxy.carried = 0
    proxy.rate = 0
    workspace.ok("copy", "--http", f"{far(workspace)}/f", "back")
    assert (workspace.local / "back").read_bytes() == LARGE
    assert proxy.carried < 36 << 20
    assert leftovers(workspace.local) == []


def journal(folder: Path) -> list[str]:
    for name in leftovers(folder):
        if name.endswith(".done"):
            return (folder / name).read_text().splitlines()
    return []


@pytest.mark.slow
def test_upload_of_a_killed_client_resumes_and_stale_ones_are_removed(
    workspace: StorageWorkspace, proxy: FaultyProxy
) -> None:
    before = partial(workspace)
    source = workspace.write("f", LARGE)
    proxy.rate = 60e6
    process = begun(workspace, "copy", "--http", "f", f"{far(workspace)}/f")
    until(lambda: proxy.carried > 34 << 20)
    process.kill()
    process.wait()
    assert workspace.names() == []
    proxy.carried, proxy.rate = 0, 40e6
    workspace.ok("copy", "--http", "f", f"{far(workspace)}/f")
    assert proxy.carried < 36 << 20
    assert workspace.read("f") == LARGE
    assert partial(workspace) == before
    process = begun(workspace, "copy", "--http", "f", f"{far(workspace)}/g")
    until(lambda: len(partial(workspace)) > len(before))
    os.utime(source)
    assert ended(process).status == 1
    assert partial(workspace) == before


def partial(workspace: StorageWorkspace) -> list[str]:
    """Unfinished uploads."""
    return sorted(os.listdir(next(workspace.person.cluster_home.rglob(".pai")) / "partial"))


def test_full_local_disk_is_reported_before_and_during(workspace: StorageWorkspace) -> None:
    with mounted(workspace.local / "small", "size=8m") as small:
        workspace.write("d/large", LARGE[: 10 << 20])
        workspace.write("d/tiny", b"x")
        workspace.ok("copy", "d", f"{workspace.remote}/d")
        done = workspace.pai("copy", f"{workspace.remote}/d", "small/d")
        refused(done, "10 MB do not fit", "large (10 MB)", "tiny (1 B)")
        assert os.listdir(small) == []


def test_partly_written_small_file_keeps_the_old_one(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=1m") as small:
        target = small / "f"
        target.write_bytes(b"old")
        (small / "others").write_bytes(bytes(700 << 10))
        with pytest.raises(PaiError, match="The disk is full"):
            LocalBackend().write_bytes(str(target), bytes(500 << 10), 0, 0o644)
        assert target.read_bytes() == b"old"
        assert sorted(os.listdir(small)) == ["f", "others"]


def test_ctrl_c_hints_at_resuming(workspace: StorageWorkspace, proxy: FaultyProxy) -> None:
    import signal

    workspace.write("f", LARGE)
    proxy.rate = 20e6
    process = begun(workspace, "copy", "--http", "f", f"{far(workspace)}/f")
    until(lambda: proxy.carried > 2 << 20)
    process.send_signal(signal.SIGINT)
    done = ended(process)
    assert done.status == 130 and "run the same command again to resume" in done.err
