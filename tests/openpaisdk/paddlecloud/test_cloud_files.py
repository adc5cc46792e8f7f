"""Files in the cloud on a real cluster of a team, with a password."""

import os
import re
import urllib.request

import pytest

HOME = "/pfs/dc1/home/alice"
MB = 1 << 20


def test_large_file_there_and_back(alice) -> None:
    content = os.urandom(9 * MB + 17)
    (alice.project / "large").write_bytes(content)
    done = alice.paddlecloud("pfs", "cp", "-v", "large", f"{HOME}/large")
    assert (done.status, done.out) == (
        0,
        "Uploading large ... Done\n  1 of 1 files, 3 of 3 chunks sent\n",
    ), done
    changed = bytearray(content)
    changed[5 * MB : 5 * MB + 10] = b"0123456789"
    (alice.project / "large").write_bytes(changed)
    assert "1 of 3 chunks sent" in alice.paddlecloud("cp", "-v", "large", f"{HOME}/large").out
    assert "0 of 3 chunks sent" in alice.paddlecloud("cp", "-v", "large", f"{HOME}/large").out
    assert alice.paddlecloud("cp", f"{HOME}/large", "back").status == 0
    assert (alice.project / "back").read_bytes() == changed
    shorter = bytes(changed[: 6 * MB])
    (alice.project / "large").write_bytes(shorter)
    assert alice.paddlecloud("cp", "large", f"{HOME}/large").status == 0
    assert alice.paddlecloud("cp", f"{HOME}/large", "back").status == 0
    assert (alice.project / "back").read_bytes() == shorter


def test_folder_there_and_back(alice) -> None:
    names = ["a.txt", "deep/er/b.txt", "deep/empty", "name with spaces & ümlaut", "zero"]
    for name in names:
        file = alice.project / "tree" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("" if name == "zero" else name)
    for _ in range(2):
        done = alice.paddlecloud("pfs", "cp", "-r", "tree", HOME)
        assert (done.status, done.out) == (0, "Uploading tree ... Done\n"), done
    assert alice.paddlecloud("pfs", "cp", "-r", f"{HOME}/tree", "copies").status == 0
    for name in names:
        assert (alice.project / "copies/tree" / name).read_text() == ("" if name == "zero" else name)


def test_list_make_and_remove(alice) -> None:
    for prefix in (["pfs"], []):
        made = alice.paddlecloud(*prefix, "mkdir", f"{HOME}/new/deep")
        assert (made.status, made.out) == (0, f"mkdir {HOME}/new/deep\n")
        shown = alice.paddlecloud(*prefix, "ls", f"{HOME}/new")
        time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
        assert re.fullmatch(rf"{HOME}/new :\n{time} d +\d+ {HOME}/new/deep\n\n", shown.out), shown
        refused = alice.paddlecloud(*prefix, "rm", f"{HOME}/new")
        assert (refused.status, "can't del directory" in refused.err) == (1, True), refused
        assert "Add -r" in refused.err, refused
        assert alice.paddlecloud(*prefix, "rm", "-r", f"{HOME}/new").out == f"rm {HOME}/new\n"
        gone = alice.paddlecloud(*prefix, "ls", f"{HOME}/new")
        assert (gone.status, gone.err) == (
            1,
            f"paddlecloud: {HOME}/new: no such file or folder in the cloud.\n",
        )


def test_remove_of_a_missing_path_is_an_error(alice) -> None:
    for path in (f"{HOME}/never", f"{HOME}/never/*.log"):
        done = alice.paddlecloud("pfs", "rm", "-r", path)
        assert (done.status, done.out) == (1, "")
        assert done.err == f"paddlecloud: {path}: no such file or folder in the cloud.\n"


@pytest.mark.parametrize("path", [HOME, f"{HOME}/", f"{HOME}/.", "/pfs/dc1/public", "/pfs/dc1/home", "/pfs"])
def test_whole_homes_are_not_removed(alice, path: str) -> None:
    (alice.project / "kept").write_text("kept")
    assert alice.paddlecloud("cp", "kept", f"{HOME}/kept").status == 0
    done = alice.paddlecloud("rm", "-r", f"{HOME}/kept", path)
    assert done.status == 2 and path in done.err
    assert "kept" in alice.paddlecloud("file", "ls", HOME).out.split()


def test_file_is_put_under_the_name_it_is_given(alice) -> None:
    (alice.project / "x").write_text("print()")
    for words, stored in (
        (("x", f"{HOME}/put/t.py"), "t.py"),
        (("x", f"{HOME}/put/t.py"), "t.py"),  # over the file that is there
        (("x", f"{HOME}/put"), "x"),
        (("x", f"{HOME}/put/v1.0/"), "v1.0/x"),
        (("x", f"{HOME}/put/v1.0"), "v1.0/x"),
        (("x", f"{HOME}/put/folder"), "folder/x"),
    ):
        done = alice.paddlecloud("file", "put", *words)
        assert (done.status, done.out) == (0, f"Uploading ... x {HOME}/put/{stored}\n"), done
    assert alice.paddlecloud("file", "ls", f"{HOME}/put").out.split() == ["folder", "t.py", "v1.0", "x"]


def test_patterns_of_list_and_remove(alice) -> None:
    for name in ("x1.log", "x2.log", "x3.txt"):
        (alice.project / name).write_text(name)
    assert alice.paddlecloud("cp", "x1.log", "x2.log", "x3.txt", f"{HOME}/globs/").status == 0
    found = alice.paddlecloud("ls", f"{HOME}/globs/*.log").out
    assert "x1.log" in found and "x2.log" in found and "x3.txt" not in found
    assert alice.paddlecloud("cp", f"{HOME}/globs/x?.log", ".").out == (
        f"Downloading {HOME}/globs/x1.log ... Done\nDownloading {HOME}/globs/x2.log ... Done\n"
    )
    assert alice.paddlecloud("rm", f"{HOME}/globs/*.log").status == 0
    assert re.findall(r"\S+$", alice.paddlecloud("ls", f"{HOME}/globs").out.strip()) == [
        f"{HOME}/globs/x3.txt"
    ]


def test_several_files_are_downloaded(alice) -> None:
    for name in ("one", "two"):
        (alice.project / name).write_text(name)
        assert alice.paddlecloud("pfs", "cp", name, f"{HOME}/several/{name}").status == 0
    (alice.project / "here").mkdir()
    done = alice.paddlecloud("pfs", "cp", f"{HOME}/several/one", f"{HOME}/several/two", "here")
    assert done.out == (
        f"Downloading {HOME}/several/one ... Done\nDownloading {HOME}/several/two ... Done\n"
    ), done
    assert [(alice.project / "here" / name).read_text() for name in ("one", "two")] == ["one", "two"]


def test_home_of_another_user_is_closed(alice) -> None:
    (alice.project / "f").write_text("mine")
    for words in (
        ["ls", "/pfs/dc1/home/bob"],
        ["cp", "f", "/pfs/dc1/home/bob/f"],
        ["rm", "/pfs/dc1/home/bob/f"],
        ["mkdir", "/pfs/dc1/home/bob/d"],
        ["cp", "/pfs/dc1/home/bob/f", "g"],
        ["file", "put", "f", "/pfs/dc1/home/bob"],
        ["publish", "/pfs/dc1/home/bob/f"],
    ):
        done = alice.paddlecloud(*words)
        assert done.status == 1, (words, done)
        assert "unauthorized" in done.err or "not a valid user" in done.err, done
    assert os.listdir(alice.project) == ["f"]


def test_datacenter_of_the_path_is_used(alice) -> None:
    (alice.project / "f").write_text("of bob")
    assert alice.paddlecloud("cp", "f", "/pfs/of-bob/home/bob/f").status == 0
    assert "of-bob/home/bob/f" in alice.paddlecloud("ls", "/pfs/of-bob/home/bob").out
    done = alice.paddlecloud("ls", "/pfs/dc9/home/alice")
    assert (done.status, "has no datacenter 'dc9'; it has dc1, of-bob." in done.err) == (2, True)
    done = alice.paddlecloud("ls", "-datacenter", "dc1", "/pfs/of-bob/home/bob")
    assert (done.status, "several datacenters: dc1, of-bob" in done.err) == (2, True)


def test_whole_files(alice) -> None:
    folder = alice.project / "pkg"
    folder.mkdir()
    (folder / "train.py").write_text("print()")
    done = alice.paddlecloud("file", "put", "pkg", f"{HOME}/whole")
    assert (done.status, done.out) == (
        0,
        f"Uploading ... pkg/train.py {HOME}/whole/pkg/train.py\n",
    ), done
    assert alice.paddlecloud("file", "put", "pkg/", f"{HOME}/whole").status == 0
    assert alice.paddlecloud("file", "ls", f"{HOME}/whole").out.split() == ["pkg", "train.py"]
    assert alice.paddlecloud("file", "get", f"{HOME}/whole/train.py", "./").status == 0
    assert (alice.project / "train.py").read_text() == "print()"
    again = alice.paddlecloud("file", "get", f"{HOME}/whole/train.py", "./")
    assert (again.status, "train.py exists already" in again.err) == (1, True)
    missing = alice.paddlecloud("file", "get", f"{HOME}/whole/nope", "nope")
    assert missing.status == 1
    assert not (alice.project / "nope").exists(), "an error became a file"


def test_published_file_needs_no_login(alice) -> None:
    (alice.project / "model").write_text("public")
    assert alice.paddlecloud("cp", "model", f"{HOME}/model").status == 0
    url = alice.paddlecloud("publish", f"{HOME}/model").out.strip()
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as reply:
        assert reply.read() == b"public"
    listed = alice.paddlecloud("publish").out
    assert listed.split()[:2] == ["FILE", "URL"]
    assert url in listed and f"{HOME}/model" in listed


def test_registries(alice) -> None:
    login = ["-name", "hub", "-username", "u", "-server", "hub.example.org"]
    assert alice.paddlecloud("registry", *login, "-password", "-", stdin="secret\n").status == 0
    lines = [line.split() for line in alice.paddlecloud("get", "registry").out.splitlines()]
    assert lines[0] == ["ID", "NAME", "DATA"]
    assert lines[1][:2] == ["0", "hub"]
    done = alice.paddlecloud("delete", "registry", "hub")
    assert (done.status, done.out) == (0, "registry: [hub] is deleted\n")
    assert alice.paddlecloud("get", "registry").out.split() == ["ID", "NAME", "DATA"]
    assert alice.paddlecloud("delete", "registry", "hub").status == 1


def test_two_uploads_of_one_file_at_once(alice) -> None:
    import subprocess

    (alice.project / "twice").write_bytes(os.urandom(9 * MB))
    both = [
        subprocess.Popen(
            ["paddlecloud", "cp", "twice", f"{HOME}/twice"],
            cwd=alice.project,
            env=alice.env(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for process in both:
        _, err = process.communicate(timeout=90)
        assert process.returncode == 0, err
    assert alice.paddlecloud("cp", f"{HOME}/twice", "back").status == 0
    assert (alice.project / "back").read_bytes() == (alice.project / "twice").read_bytes()


@pytest.mark.slow
def test_sparse_file_of_more_than_four_gigabytes(alice, team) -> None:
    size = (1 << 32) + 8 * MB
    with (alice.project / "sparse").open("wb") as f:
        f.truncate(size)
        f.seek(size - 4)
        f.write(b"last")
    done = alice.paddlecloud("pfs", "cp", "-v", "sparse", f"{HOME}/sparse")
    assert (done.status, "1 of 1026 chunks sent" in done.out) == (0, True), done
    assert f" {size} {HOME}/sparse\n" in alice.paddlecloud("ls", f"{HOME}/sparse").out
    stored = next(team.home.rglob("sparse"))
    assert stored.stat().st_blocks * 512 < 64 * MB, "zeros were written to the disk"
    assert alice.paddlecloud("rm", f"{HOME}/sparse").status == 0
