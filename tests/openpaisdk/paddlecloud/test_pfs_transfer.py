"""`paddlecloud pfs cp` over the chunk protocol: which chunks travel, and what a fault leaves behind."""

import os
import signal
import subprocess
import threading
import time

import pytest

from openpaisdk.output.progress import SHOW_AFTER_S
from openpaisdk.paddlecloud.chunk_transfer import DEFAULT_CHUNK_BYTES, PARTIAL
from support.cli_user import until
from support.terminal import Terminal

HOME = "/pfs/dc1/home/u1"
CHUNK = DEFAULT_CHUNK_BYTES
MB = 1 << 20


def content(size: int, seed: int = 1) -> bytes:
    return bytes((i * 7 + seed + (i >> 12)) & 255 for i in range(1 << 16)) * (size >> 16) + b"x" * (
        size & 0xFFFF
    )


@pytest.fixture(name="big")
def big_fixture(cloud_user):
    """A local file of five chunks, the last of them short."""
    data = bytearray(content(4 * CHUNK + 100))
    for at in range(5):
        data[at * CHUNK] = at  # chunks that differ
    file = cloud_user.project / "big"
    file.write_bytes(data)
    return file


def test_upload_in_chunks_arrives_complete(cloud_user, pfs_peer, big) -> None:
    done = cloud_user.paddlecloud("pfs", "cp", "-v", "big", f"{HOME}/big")
    assert done.status == 0, done
    assert done.out == "Uploading big ... Done\n  1 of 1 files, 5 of 5 chunks sent\n"
    assert pfs_peer.files[f"{HOME}/big"] == big.read_bytes()
    assert sorted(pfs_peer.sent) == [(f"{HOME}/big", at * CHUNK, CHUNK if at < 4 else 100) for at in range(5)]


def test_chunk_request_is_in_the_go_clients_form(cloud_user, pfs_peer, big) -> None:
    assert cloud_user.paddlecloud("cp", "-chunksize", "32768", "big", f"{HOME}/b g").status == 0
    request = next(r for r in pfs_peer.requests if r.path == "/api/v1/pfs/storage/chunks")
    boundary = "8d7b0e5709d756e21e971ff4d9ac3b20"
    assert (request.method, request.target) == ("POST", "/api/v1/pfs/storage/chunks")
    assert request.headers["content-type"] == f"multipart/form-data; boundary={boundary}"
    head, _, rest = request.body.partition(b"\r\n\r\n")
    size = big.stat().st_size
    assert head.decode() == (
        f'--{boundary}\r\nContent-Disposition: form-data; name="chunk"; '
        f'filename="chunksize={size}&offset=0&path=%2Fpfs%2Fdc1%2Fhome%2Fu1%2Fb%20g"\r\n'
        "Content-Type: application/octet-stream"
    )
    assert rest == big.read_bytes() + f"\r\n--{boundary}--\r\n".encode()


def test_repeated_upload_sends_only_what_differs(cloud_user, pfs_peer, big) -> None:
    assert cloud_user.paddlecloud("pfs", "cp", "big", f"{HOME}/big").status == 0
    pfs_peer.sent.clear()
    again = cloud_user.paddlecloud("pfs", "cp", "-v", "big", f"{HOME}/big")
    assert "0 of 1 files, 0 of 5 chunks sent" in again.out
    assert pfs_peer.sent == []
    data = bytearray(big.read_bytes())
    data[CHUNK + 5 : CHUNK + 5 + MB] = bytes(MB)
    big.write_bytes(data)
    changed = cloud_user.paddlecloud("pfs", "cp", "-v", "big", f"{HOME}/big")
    assert "1 of 1 files, 1 of 5 chunks sent" in changed.out
    assert pfs_peer.sent == [(f"{HOME}/big", CHUNK, CHUNK)]
    assert pfs_peer.files[f"{HOME}/big"] == data


def test_upload_of_zeros_sends_nothing_but_the_size(cloud_user, pfs_peer) -> None:
    with (cloud_user.project / "sparse").open("wb") as f:
        f.truncate(3 * CHUNK)
    assert cloud_user.paddlecloud("pfs", "cp", "sparse", f"{HOME}/sparse").status == 0
    assert pfs_peer.sent == []
    assert pfs_peer.files[f"{HOME}/sparse"] == bytes(3 * CHUNK)


def test_interrupted_upload_continues(cloud_user, pfs_peer, big) -> None:
    arrived = []

    def stop_after_two():
        if len(pfs_peer.sent) >= 2:
            arrived.append(1)
            raise OSError

    pfs_peer.before_chunk = stop_after_two
    first = cloud_user.paddlecloud("pfs", "cp", "big", f"{HOME}/big")
    assert first.status == 1
    assert first.out == "Uploading big ... Failed\n"
    assert arrived
    done = len(pfs_peer.sent)
    assert 0 < done < 5
    pfs_peer.before_chunk = lambda: None
    assert cloud_user.paddlecloud("pfs", "cp", "big", f"{HOME}/big").status == 0
    assert len(pfs_peer.sent) == 5, "no chunk was sent twice"
    assert pfs_peer.files[f"{HOME}/big"] == big.read_bytes()


def test_new_file_appears_when_it_is_complete(cloud_user, pfs_peer, big) -> None:
    pfs_peer.can_rename = True

    def stop_after_two():
        assert f"{HOME}/big" not in pfs_peer.files
        if len(pfs_peer.sent) >= 2:
            raise OSError

    pfs_peer.before_chunk = stop_after_two
    assert cloud_user.paddlecloud("pfs", "cp", "big", f"{HOME}/big").status == 1
    assert list(pfs_peer.files) == [f"{HOME}/big{PARTIAL}"]
    sent = len(pfs_peer.sent)
    pfs_peer.before_chunk = lambda: None
    done = cloud_user.paddlecloud("pfs", "cp", "-v", "big", f"{HOME}/big")
    assert f"1 of 1 files, {5 - sent} of 5 chunks sent" in done.out, done
    assert pfs_peer.files == {f"{HOME}/big": big.read_bytes()}


def test_new_file_that_shrinks_leaves_nothing(cloud_user, pfs_peer, big) -> None:
    pfs_peer.can_rename = True
    pfs_peer.before_chunk = lambda: os.truncate(big, 10)
    assert cloud_user.paddlecloud("pfs", "cp", "big", f"{HOME}/big").status == 1
    assert pfs_peer.files == {}


def test_chunk_that_arrives_damaged_is_sent_again(cloud_user, pfs_peer, big) -> None:
    faults = [1, 2]
    pfs_peer.spoil = lambda data: b"\0" * len(data) if faults and faults.pop() else data
    assert cloud_user.paddlecloud("pfs", "cp", "big", f"{HOME}/big").status == 0
    assert pfs_peer.files[f"{HOME}/big"] == big.read_bytes()
    pfs_peer.spoil = lambda data: b"\0" * len(data)
    big.write_bytes(content(2 * CHUNK, 9))
    done = cloud_user.paddlecloud("pfs", "cp", "big", f"{HOME}/big")
    assert done.status == 1
    assert "the checksums differ" in done.err


def test_file_that_shrinks_during_the_upload(cloud_user, pfs_peer, big) -> None:
    pfs_peer.before_chunk = lambda: os.truncate(big, 10)
    done = cloud_user.paddlecloud("pfs", "cp", "big", f"{HOME}/big")
    assert done.status == 1
    assert "big changed while it was copied" in done.err
    assert f"{HOME}/big" not in pfs_peer.files, "half of a file stayed behind"


def test_file_that_changes_in_place_during_the_upload(cloud_user, pfs_peer, big) -> None:
    def change():
        with big.open("r+b") as f:
            f.write(b"changed")

    pfs_peer.before_chunk = change
    done = cloud_user.paddlecloud("pfs", "cp", "big", f"{HOME}/big")
    assert (done.status, "changed while it was copied" in done.err) == (1, True)


def test_download_arrives_complete(cloud_user, pfs_peer) -> None:
    data = content(2 * CHUNK + 5)
    pfs_peer.files[f"{HOME}/model"] = bytearray(data)
    done = cloud_user.paddlecloud("pfs", "cp", "-v", f"{HOME}/model", ".")
    assert done.status == 0, done
    assert done.out == f"Downloading {HOME}/model ... Done\n  1 of 1 files, 3 of 3 chunks sent\n"
    assert (cloud_user.project / "model").read_bytes() == data
    assert os.listdir(cloud_user.project) == ["model"]


def test_repeated_download_fetches_only_what_differs(cloud_user, pfs_peer) -> None:
    data = bytearray(content(3 * CHUNK))
    target = cloud_user.project / "model"
    pfs_peer.files[f"{HOME}/model"] = data
    target.write_bytes(data)
    target.chmod(0o640)
    inode = target.stat().st_ino
    assert "0 of 3 chunks sent" in cloud_user.paddlecloud("pfs", "cp", "-v", f"{HOME}/model", "model").out
    assert target.stat().st_ino == inode, "an unchanged file was replaced"
    data[CHUNK] ^= 255
    assert "1 of 3 chunks sent" in cloud_user.paddlecloud("pfs", "cp", "-v", f"{HOME}/model", "model").out
    assert target.read_bytes() == data
    assert target.stat().st_mode & 0o777 == 0o640
    assert pfs_peer.fetched == [(f"{HOME}/model", CHUNK, CHUNK)]


def test_interrupted_download_keeps_the_old_file_and_continues(cloud_user, pfs_peer) -> None:
    data = content(4 * CHUNK)
    data = b"".join(bytes([at]) + data[at * CHUNK + 1 : (at + 1) * CHUNK] for at in range(4))
    pfs_peer.files[f"{HOME}/model"] = bytearray(data)
    target = cloud_user.project / "model"
    target.write_bytes(b"old")

    def damaged_from_the_second_on(chunk: bytes) -> bytes:
        return chunk if len(pfs_peer.fetched) == 1 else b"\0" * len(chunk)

    pfs_peer.spoil = damaged_from_the_second_on
    first = cloud_user.paddlecloud("pfs", "cp", f"{HOME}/model", "model")
    assert (first.status, "the checksums differ" in first.err) == (1, True)
    assert target.read_bytes() == b"old"
    pfs_peer.spoil = lambda chunk: chunk
    pfs_peer.fetched.clear()
    assert cloud_user.paddlecloud("pfs", "cp", f"{HOME}/model", "model").status == 0
    assert len(pfs_peer.fetched) == 3, "the chunk that had arrived was fetched again"
    assert target.read_bytes() == data
    assert not target.with_name("model" + PARTIAL).exists()


@pytest.mark.parametrize("before", [None, b"old"])
def test_two_downloads_of_one_file_at_once(cloud_user, pfs_peer, before) -> None:
    """Both have begun before one of them completes the file."""
    data = os.urandom(6 << 20)
    pfs_peer.files[f"{HOME}/model"] = bytearray(data)
    if before is not None:
        (cloud_user.project / "model").write_bytes(before)
    arrived, both = [], threading.Event()

    def wait_for_the_other() -> None:
        arrived.append(None)
        both.wait(60)

    pfs_peer.before_chunk = wait_for_the_other
    words = ["paddlecloud", "pfs", "cp", f"{HOME}/model", "model"]
    more = {"cwd": cloud_user.project, "env": cloud_user.env(), "stderr": subprocess.PIPE}
    commands = [subprocess.Popen(words, stdout=subprocess.DEVNULL, **more) for _ in range(2)]
    try:
        until(lambda: len(arrived) == 4)  # each of them fetches its two chunks at once
    finally:
        both.set()
    ends = [(command.communicate(timeout=90)[1], command.returncode) for command in commands]
    assert ends == [(b"", 0), (b"", 0)]
    assert (cloud_user.project / "model").read_bytes() == data
    assert os.listdir(cloud_user.project) == ["model"]


def test_control_c_ends_the_command_with_130(cloud_user, pfs_peer, big) -> None:
    release = threading.Event()
    pfs_peer.before_chunk = lambda: release.wait(60)
    process = subprocess.Popen(
        ["paddlecloud", "pfs", "cp", "big", f"{HOME}/big"],
        cwd=cloud_user.project,
        env=cloud_user.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until(lambda: any(r.path.endswith("storage/chunks") for r in pfs_peer.requests))
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=90)
    finally:
        release.set()
    assert (process.returncode, b"Traceback" in err) == (130, False)
    assert out == b"Uploading big ... Failed\n"
    assert b"The same command continues the copy" in err


def test_progress_is_drawn_on_a_terminal_and_removed(cloud_user, pfs_peer, big) -> None:
    release = threading.Event()
    pfs_peer.before_chunk = lambda: len(pfs_peer.sent) > 1 and release.wait(60)
    terminal = Terminal(
        ["paddlecloud", "cp", "big", f"{HOME}/big"], 120, cwd=cloud_user.project, env=cloud_user.env()
    )
    try:
        # The bar appears after a second, with the next chunk.
        until(lambda: len([r for r in pfs_peer.requests if r.path.endswith("storage/chunks")]) >= 4)
        started = time.monotonic()
        until(lambda: time.monotonic() - started > SHOW_AFTER_S + 0.2)
    finally:
        release.set()
    assert terminal.finish() == 0, terminal.text
    assert "Uploading big [" in terminal.text and "% " in terminal.text
    assert terminal.lines[-2].endswith("\rUploading big ... Done")


def tree(user, *names: str) -> None:
    for name in names:
        file = user.project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)


def test_folder_is_uploaded_below_the_destination(cloud_user, pfs_peer) -> None:
    tree(cloud_user, "job/data/train/a", "job/data/test/b")
    (cloud_user.project / "job/data/empty").mkdir()
    for _ in range(2):  # the same command again means the same place
        done = cloud_user.paddlecloud("pfs", "cp", "-r", "./job/data", f"{HOME}/job")
        assert done.status == 0, done
        assert sorted(pfs_peer.files) == [f"{HOME}/job/data/test/b", f"{HOME}/job/data/train/a"]
    assert f"{HOME}/job/data/empty" in pfs_peer.folders
    assert pfs_peer.files[f"{HOME}/job/data/train/a"] == b"job/data/train/a"


def test_folder_with_a_slash_means_its_content(cloud_user, pfs_peer) -> None:
    tree(cloud_user, "data/a")
    assert cloud_user.paddlecloud("pfs", "cp", "-r", "data/", f"{HOME}/job").status == 0
    assert list(pfs_peer.files) == [f"{HOME}/job/a"]


def test_folder_needs_r(cloud_user, pfs_peer) -> None:
    tree(cloud_user, "data/a")
    done = cloud_user.paddlecloud("pfs", "cp", "data", f"{HOME}/job")
    assert (done.status, "data is a folder." in done.err) == (2, True)
    assert pfs_peer.files == {}


def test_several_sources(cloud_user, pfs_peer) -> None:
    tree(cloud_user, "a", "b", "c/d")
    done = cloud_user.paddlecloud("pfs", "cp", "-r", "a", "b", "c", f"{HOME}/job")
    assert done.out == "Uploading a ... Done\nUploading b ... Done\nUploading c ... Done\n"
    assert sorted(pfs_peer.files) == [f"{HOME}/job/{name}" for name in ("a", "b", "c/d")]


def test_missing_source_among_several_uploads_nothing(cloud_user, pfs_peer) -> None:
    tree(cloud_user, "a")
    done = cloud_user.paddlecloud("pfs", "cp", "a", "nope", f"{HOME}/job")
    assert (done.status, pfs_peer.requests) == (2, [])


def test_file_lands_in_an_existing_folder(cloud_user, pfs_peer) -> None:
    tree(cloud_user, "a")
    pfs_peer.folders.add(f"{HOME}/job")
    assert cloud_user.paddlecloud("pfs", "cp", "a", f"{HOME}/job").status == 0
    assert list(pfs_peer.files) == [f"{HOME}/job/a"]


def test_folder_is_downloaded_under_its_name_or_onto_it(cloud_user, pfs_peer) -> None:
    pfs_peer.folders |= {f"{HOME}/job/output", f"{HOME}/job/output/pass-1", f"{HOME}/job/output/empty"}
    pfs_peer.files[f"{HOME}/job/output/pass-1/model"] = bytearray(b"m")
    for _ in range(2):
        done = cloud_user.paddlecloud("pfs", "cp", f"{HOME}/job/output", "./output")
        assert done.out == f"Downloading {HOME}/job/output ... Done\n"
        assert (cloud_user.project / "output/pass-1/model").read_bytes() == b"m"
        assert os.listdir(cloud_user.project) == ["output"]
    assert (cloud_user.project / "output/empty").is_dir()
    assert cloud_user.paddlecloud("pfs", "cp", "-r", f"{HOME}/job/output", "elsewhere").status == 0
    assert (cloud_user.project / "elsewhere/output/pass-1/model").exists()


def test_patterns_are_expanded_in_the_cloud(cloud_user, pfs_peer) -> None:
    pfs_peer.folders |= {HOME, f"{HOME}/logs1", f"{HOME}/logs2"}
    for name in ("a.log", "b.log", "c.txt", ".hidden.log", "logs1/x.log", "logs2/y.log"):
        pfs_peer.files[f"{HOME}/{name}"] = bytearray(name.encode())
    done = cloud_user.paddlecloud("pfs", "cp", f"{HOME}/*.log", ".")
    assert done.status == 0, done
    assert sorted(os.listdir(cloud_user.project)) == ["a.log", "b.log"]
    assert cloud_user.paddlecloud("pfs", "cp", f"{HOME}/logs?/*", "sub/").status == 1  # no such folder
    (cloud_user.project / "sub").mkdir()
    assert cloud_user.paddlecloud("pfs", "cp", f"{HOME}/logs?/*", "sub/").status == 0
    assert sorted(os.listdir(cloud_user.project / "sub")) == ["x.log", "y.log"]
    done = cloud_user.paddlecloud("pfs", "cp", f"{HOME}/*.nothing", ".")
    assert (done.status, "no file in the cloud matches" in done.err) == (1, True)


def test_server_cannot_write_outside_the_destination(cloud_user, pfs_peer) -> None:
    pfs_peer.folders.add(f"{HOME}/job")
    pfs_peer.files[f"{HOME}/job/../../escaped"] = bytearray(b"x")
    done = cloud_user.paddlecloud("pfs", "cp", f"{HOME}/job", "target")
    assert (done.status, "where it cannot be" in done.err) == (1, True)
    assert os.listdir(cloud_user.project) == []


def test_missing_local_folder_is_named(cloud_user, pfs_peer) -> None:
    pfs_peer.files[f"{HOME}/f"] = bytearray(b"x")
    for words in (["pfs", "cp"], ["file", "get"]):
        done = cloud_user.paddlecloud(*words, f"{HOME}/f", "nowhere/f")
        assert (done.status, done.out) == (1, ""), done
        assert done.err.startswith("paddlecloud: There is no folder nowhere.\n"), done


def test_links_of_a_folder(cloud_user, pfs_peer, tmp_path) -> None:
    """A link to a file is that file; one to a folder could lead anywhere, and is left out."""
    tree(cloud_user, "data/a", "other/b")
    (cloud_user.project / "data/file").symlink_to("../other/b")
    (cloud_user.project / "data/folder").symlink_to("../other")
    (cloud_user.project / "data/broken").symlink_to("nothing")
    done = cloud_user.paddlecloud("pfs", "cp", "-r", "data", f"{HOME}/job")
    assert done.status == 0, done
    assert sorted(pfs_peer.files) == [f"{HOME}/job/data/a", f"{HOME}/job/data/file"]
    assert pfs_peer.files[f"{HOME}/job/data/file"] == b"other/b"
    assert done.err.startswith("Not uploaded: ") and "folder (a link to a folder)" in done.err
    assert "broken" in done.err


def test_missing_file_in_the_cloud(cloud_user, pfs_peer) -> None:
    done = cloud_user.paddlecloud("pfs", "cp", f"{HOME}/nope", ".")
    assert (done.status, done.err) == (1, f"paddlecloud: {HOME}/nope: no such file or folder in the cloud.\n")


def test_file_name_that_is_not_utf8(cloud_user, pfs_peer) -> None:
    (cloud_user.project / "data").mkdir()
    (cloud_user.project / "data" / os.fsdecode(b"\xff")).touch()
    done = cloud_user.paddlecloud("pfs", "cp", "-r", "data", f"{HOME}/job")
    assert (done.status, "is not valid UTF-8" in done.err) == (1, True)
    assert pfs_peer.files == {}
