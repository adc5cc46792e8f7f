"""Source archives: which files are packed, ignore files, determinism."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openpaisdk.jobs.sources import SourceArchive, collect
from paiprotocol.errors import PaiError, UsageError


def open_tar(sources: SourceArchive) -> tarfile.TarFile:
    data = b"".join(sources.chunks())
    assert len(data) == sources.size
    return tarfile.open(fileobj=io.BytesIO(data))


def names(sources: SourceArchive | None) -> list[str]:
    return [] if sources is None else open_tar(sources).getnames()


def fill(root: Path, *paths: str) -> None:
    for path in paths:
        full = root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(f"content of {path}\n")


def test_archive_has_files_folders_and_modes(tmp_path) -> None:
    fill(tmp_path, "train.py", "data/a.csv", "empty_file")
    (tmp_path / "empty_file").write_bytes(b"")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "empty").mkdir()
    os.utime(tmp_path / "train.py", (1_000_000_000, 1_000_000_000))
    tar = open_tar(collect(str(tmp_path)))
    assert tar.getnames() == ["data", "data/a.csv", "empty", "empty_file", "run.sh", "train.py"]
    assert tar.extractfile("data/a.csv").read() == b"content of data/a.csv\n"
    assert tar.getmember("run.sh").mode == 0o755
    assert tar.getmember("train.py").mtime == 1_000_000_000
    assert {(m.uid, m.gid, m.uname, m.gname) for m in tar} == {(0, 0, "", "")}


def test_hash_changes_only_with_the_folder(tmp_path) -> None:
    for name in ("one", "two"):
        fill(tmp_path / name, "b", "a", "c/d")
        for path in (tmp_path / name).rglob("*"):
            os.utime(path, (5, 5))
    one, two = collect(str(tmp_path / "one")), collect(str(tmp_path / "two"))
    # the contents contain their path, which is the same in both
    assert one.sha256 == two.sha256
    (tmp_path / "two/a").write_text("else\n")
    assert collect(str(tmp_path / "two")).sha256 != one.sha256


def test_empty_folder_has_no_archive(tmp_path) -> None:
    assert collect(str(tmp_path)) is None


def test_caches_and_environments_are_skipped(tmp_path) -> None:
    fill(
        tmp_path,
        "a.py",
        ".git/config",
        "__pycache__/a.pyc",
        ".openpai/clusters.yaml",
        "p/__pycache__/x.pyc",
        "p/b",
    )
    fill(tmp_path, "env/pyvenv.cfg", "env/bin/python", "conda/conda-meta/history", "conda/bin/python")
    assert names(collect(str(tmp_path))) == ["a.py", "p", "p/b"]


def test_paiignore_wins_over_gitignore(tmp_path) -> None:
    fill(tmp_path, "data/x", "out/y", "a.py")
    (tmp_path / ".gitignore").write_text("data/\n")
    found = collect(str(tmp_path))
    assert "data/x" not in names(found) and found.ignored == ["data/"]
    (tmp_path / ".paiignore").write_text("out\n")
    found = collect(str(tmp_path))
    assert "data/x" in names(found) and "out/y" not in names(found)


def test_ignore_files_up_to_the_repository_root_apply(tmp_path) -> None:
    (tmp_path / ".gitignore").write_text("everything.py\n")
    repo = tmp_path / "repo"
    fill(repo, "sub/a.log", "sub/keep.py", "sub/deep/big.bin", "sub/everything.py")
    (repo / ".git").mkdir()
    (repo / ".gitignore").write_text("*.log\n/sub/deep\n")
    assert names(collect(str(repo / "sub"))) == ["everything.py", "keep.py"]


LINES = (  # noqa: SIM905
    "a| b/|/a|*.x|a/b|**/c|a/**|a/**/c|!a|!*.x|?.y|[ab].x|[!a].y|#c|\\#c|"
    "|  |c  |!/b|b/*|*|!b/|**|a*|\\!d|d/|b/"
).split("|")
PATTERNS = st.lists(st.sampled_from(LINES), max_size=5)


def as_git_lists(root) -> list[str]:
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-o", "--exclude-per-directory=.gitignore"],
        cwd=root,
        check=True,
        capture_output=True,
    )
    return sorted(p.decode() for p in listed.stdout.split(b"\0") if p)


def collected_files(root) -> list[str]:
    found = collect(str(root))
    return sorted(m.name for m in found.members if not m.name.endswith("/")) if found else []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(top=PATTERNS, inner=PATTERNS)
def test_ignore_files_match_git(tmp_path_factory, top, inner) -> None:
    root = tmp_path_factory.mktemp("repo")
    fill(root, "a/b/c/d.x", "a/c", "b/a/a.x", "b/b.y", "c/d", "a.x", "b.y", "d/#c", "d/!d", "#c")
    (root / ".gitignore").write_text("\n".join(top) + "\n")
    (root / "b/.gitignore").write_text("\n".join(inner) + "\n")
    assert collected_files(root) == as_git_lists(root)


UNUSUAL = (  # noqa: SIM905
    "[[:alpha:]] [![:alpha:]]* [^[:lower:]] [[:digit:][:upper:]] [[:none:]] [a\\-c] [\\]] []b] [!]b] [[a] "
    "[--b] [b-a] [!b-a] [b [ //a a// ***/c a/***/c a/*** a***c \ufeffa"
).split()


@pytest.mark.parametrize("line", UNUSUAL)
@pytest.mark.filterwarnings("error::FutureWarning")
def test_special_ignore_patterns_match_git(tmp_path, line) -> None:
    fill(tmp_path, "a/b/c", "a/c", "b/a", "c/a/c", "d/-", "d/]", "d/[", "d/7", "d/A", "d/z", "d/abc")
    (tmp_path / ".gitignore").write_text(f"{line}\n", "utf-8")
    assert collected_files(tmp_path) == as_git_lists(tmp_path)


def test_selected_paths_are_packed_alone_with_relative_paths(tmp_path) -> None:
    fill(tmp_path, "a.py", "b.py", "lib/x/y.py", "lib/z.py")
    assert names(collect(str(tmp_path), ["a.py", "lib/x"])) == ["a.py", "lib", "lib/x", "lib/x/y.py"]
    assert names(collect(str(tmp_path), ["lib/"])) == ["lib", "lib/x", "lib/x/y.py", "lib/z.py"]
    assert names(collect(str(tmp_path), [str(tmp_path / "b.py")])) == ["b.py"]
    assert len(names(collect(str(tmp_path), ["."]))) == 6


def test_selected_file_is_packed_even_if_ignored(tmp_path) -> None:
    fill(tmp_path, "model.bin", "a.py")
    (tmp_path / ".gitignore").write_text("*.bin\n")
    assert names(collect(str(tmp_path), ["model.bin"])) == ["model.bin"]


@pytest.mark.parametrize(
    ("path", "says"), [("../x", "outside"), ("nothing", "no such file"), ("/etc/passwd", "outside")]
)
def test_invalid_path_is_rejected(tmp_path, path: str, says: str) -> None:
    fill(tmp_path, "x", "in/a")
    with pytest.raises(UsageError, match=says):
        collect(str(tmp_path / "in"), [path])


def test_symlinks_keep_their_targets(tmp_path) -> None:
    root = tmp_path / "root"
    fill(root, "a/file", "b/other")
    fill(tmp_path, "outside")
    (root / "inside").symlink_to("a/file")
    (root / "absolute").symlink_to(root / "a/file")
    (root / "out").symlink_to("../outside")
    (root / "b/up").symlink_to("../a/file")
    (root / "broken").symlink_to("nowhere")
    tar = open_tar(collect(str(root)))
    assert tar.getmember("inside").linkname == "a/file"
    assert tar.getmember("absolute").linkname == "a/file"
    assert tar.getmember("out").linkname == str(tmp_path / "outside")
    assert tar.getmember("b/up").linkname == "../a/file"
    assert tar.getmember("broken").issym()


def test_sockets_and_pipes_are_skipped(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    fill(tmp_path, "a")
    assert names(collect(str(tmp_path))) == ["a"]


def test_too_large_folder_is_rejected_with_its_largest_files(tmp_path) -> None:
    for i in range(20):
        (tmp_path / f"f{i:02}").write_bytes(b"x" * (i + 1) * 1000)
    with pytest.raises(PaiError, match=r"f\d\d \(") as caught:
        collect(str(tmp_path), max_bytes=50_000)
    assert caught.value.hint and ".paiignore" in caught.value.hint
    assert str(caught.value).count("kB)") <= 10


class ServerWithLimit:
    """The part of a client that tells how much the server takes."""

    alias = "team"
    is_embedded = False

    def __init__(self, limit: int | None):
        self.limit = limit
        self.calls = 0

    def max_sources_bytes(self) -> int | None:
        self.calls += 1
        return self.limit


def sparse(path, size: int) -> None:
    with path.open("wb") as f:
        f.truncate(size)


def test_named_files_may_have_what_the_server_takes(tmp_path) -> None:
    sparse(tmp_path / "big", 60_000)
    cluster = ServerWithLimit(100_000)
    assert names(collect(str(tmp_path), ["big"], max_bytes=50_000, connect=lambda: cluster)) == ["big"]
    assert cluster.calls == 1
    with pytest.raises(PaiError, match="This folder has more than 49 kB"):
        collect(str(tmp_path), max_bytes=50_000, connect=lambda: cluster)
    fill(tmp_path, "small")
    assert collect(str(tmp_path), ["small"], max_bytes=50_000, connect=lambda: cluster)
    assert cluster.calls == 1, "small files need no question"


@pytest.mark.parametrize(("limit", "shown"), [(100_000, "98 kB"), (None, "49 kB")])
def test_named_files_over_the_limit_name_the_setting_and_the_storage(tmp_path, limit, shown: str) -> None:
    sparse(tmp_path / "big", 110_000)
    cluster = ServerWithLimit(limit)
    with pytest.raises(PaiError) as caught:
        collect(str(tmp_path), ["big"], max_bytes=50_000, connect=lambda: cluster)
    assert f"more than {shown}" in caught.value.message and "big (107 kB)" in caught.value.message
    assert "pai copy big pai://team/0/" in caught.value.hint
    assert ("sources-mb" in caught.value.hint) == (limit is not None)


def test_size_of_the_archive_counts(tmp_path) -> None:
    for i in range(60):
        (tmp_path / f"f{i}").write_text("")
    with pytest.raises(PaiError, match="more than"):
        collect(str(tmp_path), max_bytes=60 * 512)


def test_long_and_unusual_names_are_packed(tmp_path) -> None:
    deep = "/".join(["d" * 60] * 4)
    fill(tmp_path, f"{deep}/train.py", "ünï/文件.py", "with space\nand newline")
    odd = os.fsdecode(b"latin-\xe9")
    (tmp_path / odd).write_text("x")
    (tmp_path / "link").symlink_to("x" * 150)
    tar = open_tar(collect(str(tmp_path)))
    assert f"{deep}/train.py" in tar.getnames() and "ünï/文件.py" in tar.getnames()
    assert odd in tar.getnames() and "with space\nand newline" in tar.getnames()
    assert tar.getmember("link").linkname == "x" * 150


def test_large_archive_is_generated_twice_identically(tmp_path) -> None:
    (tmp_path / "big").write_bytes(os.urandom(9 << 20))
    sources = collect(str(tmp_path))
    assert sources.content is None
    import hashlib

    assert hashlib.sha256(b"".join(sources.chunks())).hexdigest() == sources.sha256


def test_file_that_shrinks_does_not_break_the_archive(tmp_path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"x" * (9 << 20))
    sources = collect(str(tmp_path))
    big.write_bytes(b"y" * 10)
    assert len(b"".join(sources.chunks())) == sources.size


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file_is_named(tmp_path) -> None:
    fill(tmp_path, "secret")
    (tmp_path / "secret").chmod(0)
    with pytest.raises(PaiError, match="secret cannot be read"):
        collect(str(tmp_path))


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=120),
        st.binary(max_size=2000),
        min_size=1,
        max_size=5,
    )
)
def test_tarfile_reads_any_archive(files) -> None:
    from paiprotocol.transfer import tar_writer as tar

    parts = []
    for name in sorted(files):
        parts.append(tar.header(name, kind=tar.FILE, mode=0o640, size=len(files[name]), mtime=7))
        parts.append(tar.padded(files[name]))
    with tarfile.open(fileobj=io.BytesIO(b"".join(parts) + tar.END)) as archive:
        read = {m.name: archive.extractfile(m).read() for m in archive}
    # tarfile treats a trailing slash as a folder and strips it; names here have none
    assert read == files
