"""Python clients: `hdfs` with its command, fsspec, PyHDFS, pywebhdfs and NNI's PythonWebHDFS."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow
import pyarrow.parquet
import pyhdfs
import pytest
import requests
from hdfs import HdfsError
from hdfs.client import Client, InsecureClient, TokenClient
from pywebhdfs.errors import FileNotFound
from pywebhdfs.webhdfs import PyWebHdfsClient

from support.third_party_clients import python_webhdfs
from support.webhdfs_client import StorageCluster, WebHdfsClient

DATA = hashlib.shake_128(b"clients").digest(2_500_000)


@pytest.fixture
def hdfs_client(cluster: StorageCluster) -> TokenClient:
    return TokenClient(cluster.url, token=cluster.tokens["alice"], root="/user/alice")


def test_hdfs_client_with_the_url_of_openpais_proxy(cluster: StorageCluster, folder: str) -> None:
    client = TokenClient(cluster.url + "/webhdfs", token=cluster.tokens["alice"])
    client.write(f"{folder}/file", data=b"x")
    assert client.list(folder) == ["file"]


def test_hdfs_client_with_a_delegation_token(
    alice: WebHdfsClient, cluster: StorageCluster, folder: str
) -> None:
    token = alice.json("GETDELEGATIONTOKEN", "/")["Token"]["urlString"]
    assert TokenClient(cluster.url, token=token).list(folder) == []


def test_hdfs_client_uploads_and_downloads_folders(hdfs_client: Client, folder: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep/er").mkdir(parents=True)
    (source / "large").write_bytes(DATA)
    (source / "deep/er/ä b").write_bytes(b"small")
    (source / "empty").write_bytes(b"")
    hdfs_client.upload(f"{folder}/up", str(source), n_threads=2)
    hdfs_client.download(f"{folder}/up", str(tmp_path / "back"), n_threads=2)
    for name in ("large", "deep/er/ä b", "empty"):
        assert (tmp_path / "back" / name).read_bytes() == (source / name).read_bytes()
    (source / "large").write_bytes(b"new")
    hdfs_client.upload(f"{folder}/up/large", str(source / "large"), overwrite=True)
    with hdfs_client.read(f"{folder}/up/large") as reader:
        assert reader.read() == b"new"


def test_hdfs_client_operations(hdfs_client: Client, folder: str) -> None:
    with hdfs_client.write(f"{folder}/file", encoding="utf-8") as writer:
        writer.write("línea 1\n")
        writer.write("línea 2\n")
    hdfs_client.write(f"{folder}/file", data="línea 3\n", encoding="utf-8", append=True)
    with hdfs_client.read(f"{folder}/file", encoding="utf-8", delimiter="\n") as reader:
        assert list(reader) == ["línea 1", "línea 2", "línea 3", ""]
    with hdfs_client.read(f"{folder}/file", offset=9, length=9, chunk_size=4) as reader:
        assert b"".join(reader) == "línea 2\n".encode()
    assert hdfs_client.status(f"{folder}/file")["length"] == 27
    assert hdfs_client.content(folder)["fileCount"] == 1
    assert hdfs_client.checksum(f"{folder}/file")["algorithm"].startswith("MD5-of-")
    hdfs_client.makedirs(f"{folder}/a/b", permission="700")
    hdfs_client.rename(f"{folder}/file", f"{folder}/a/b/moved")
    assert [names for _, _, names in hdfs_client.walk(folder)] == [[], [], ["moved"]]
    hdfs_client.set_permission(f"{folder}/a/b/moved", "600")
    hdfs_client.set_times(f"{folder}/a/b/moved", modification_time=1_500_000_000_000)
    hdfs_client.set_replication(f"{folder}/a/b/moved", 2)
    with pytest.raises(HdfsError, match="no ACLs"):
        hdfs_client.acl_status(folder)
    with pytest.raises(HdfsError, match="non empty"):
        hdfs_client.delete(f"{folder}/a")
    assert hdfs_client.delete(f"{folder}/a", recursive=True, skip_trash=True)
    assert not hdfs_client.delete(f"{folder}/a", recursive=True)
    with pytest.raises(HdfsError, match="File does not exist"):
        hdfs_client.status(f"{folder}/none")
    with pytest.raises(HdfsError, match="already exists"):
        hdfs_client.write(f"{folder}/twice", data=b"")
        hdfs_client.write(f"{folder}/twice", data=b"")


def test_hdfscli_command(cluster: StorageCluster, folder: str, tmp_path: Path) -> None:
    config = tmp_path / "hdfscli.cfg"
    config.write_text(
        f"[global]\ndefault.alias = pai\n[pai.alias]\nclient = TokenClient\nurl = {cluster.url}\n"
        f"token = {cluster.tokens['alice']}\nroot = /user/alice\n"
    )
    (tmp_path / "file").write_bytes(DATA)

    def hdfscli(*arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "hdfs", *arguments, "--alias=pai"],
            env={"HDFSCLI_CONFIG": str(config), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr

    hdfscli("upload", "file", f"{folder}/file")
    hdfscli("download", f"{folder}/file", "back")
    assert (tmp_path / "back").read_bytes() == DATA


@pytest.fixture
def files(cluster: StorageCluster) -> fsspec.AbstractFileSystem:
    host, port = cluster.address
    return fsspec.filesystem(
        "webhdfs", host=host, port=port, token=cluster.tokens["alice"], skip_instance_cache=True
    )


def test_fsspec_operations(files: fsspec.AbstractFileSystem, folder: str) -> None:
    with files.open(f"{folder}/large", "wb", block_size=1 << 20) as file:
        for i in range(0, len(DATA), 300_000):
            file.write(DATA[i : i + 300_000])
    assert files.cat_file(f"{folder}/large") == DATA
    assert files.cat_file(f"{folder}/large", start=10, end=20) == DATA[10:20]
    with files.open(f"{folder}/large", "rb") as file:
        file.seek(2_000_000)
        assert file.read(10) == DATA[2_000_000:2_000_010]
    assert files.size(f"{folder}/large") == len(DATA)
    files.pipe_file(f"{folder}/small", b"small")
    assert sorted(name.rsplit("/", 1)[1] for name in files.ls(folder, detail=False)) == ["large", "small"]
    files.mkdir(f"{folder}/sub")
    files.mv(f"{folder}/small", f"{folder}/sub/moved")
    assert files.exists(f"{folder}/sub/moved")
    assert not files.exists(f"{folder}/small")
    assert files.du(folder) == len(DATA) + 5
    assert files.content_summary(folder)["fileCount"] == 2
    assert files.ukey(f"{folder}/large")["algorithm"].startswith("MD5-of-")
    assert files.home_directory() == "/user/alice"
    files.rm(f"{folder}/sub", recursive=True)
    with pytest.raises(FileNotFoundError):
        files.info(f"{folder}/sub")


def test_fsspec_raises_permission_error(files: fsspec.AbstractFileSystem, folder: str) -> None:
    with pytest.raises(PermissionError):
        files.ls("/user/bob")


# -- clients that insist on the redirect -----------------------------------------------------------


class BearerToken(requests.auth.AuthBase):
    def __init__(self, token: str):
        self.token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self.token}"
        return request


def test_pyhdfs_operations(cluster: StorageCluster, folder: str, tmp_path: Path) -> None:
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {cluster.tokens['alice']}"
    client = pyhdfs.HdfsClient("{}:{}".format(*cluster.address), requests_session=session, max_tries=1)
    client.create(f"{folder}/é", DATA)
    client.append(f"{folder}/é", b"end")
    assert client.open(f"{folder}/é").read() == DATA + b"end"
    assert client.open(f"{folder}/é", offset=len(DATA)).read() == b"end"
    assert client.get_file_checksum(f"{folder}/é").algorithm.startswith("MD5-of-")
    assert client.listdir(folder) == ["é"]
    client.copy_to_local(f"{folder}/é", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == DATA + b"end"
    assert client.get_home_directory() == "/user/alice"
    assert client.get_content_summary(folder).fileCount == 1
    assert client.list_xattrs(folder) == []
    with pytest.raises(pyhdfs.HdfsFileNotFoundException):
        client.open(f"{folder}/none")
    with pytest.raises(pyhdfs.HdfsAccessControlException):
        client.listdir("/user/bob")
    with pytest.raises(pyhdfs.HdfsUnsupportedOperationException):
        client.set_xattr(folder, "user.color", "red", "CREATE")
    with pytest.raises(pyhdfs.HdfsSnapshotException, match="Directory is not a snapshottable directory"):
        client.create_snapshot(folder)
    assert client.delete(folder, recursive=True)


def test_clients_that_send_only_a_user_name(new_cluster: Callable[..., StorageCluster]) -> None:
    """As their documentation shows them; the cluster must trust names."""
    cluster = new_cluster("authentication: {trust-user-name: true}\n")
    host, port = cluster.address
    py_hdfs = pyhdfs.HdfsClient(f"{host}:{port}", user_name="alice", max_tries=1)
    py_hdfs.create("/user/alice/city=Orléans/日本", DATA)
    insecure = InsecureClient(cluster.url, user="alice")
    with insecure.read("/user/alice/city=Orléans/日本") as reader:
        assert reader.read() == DATA
    py_webhdfs = PyWebHdfsClient(host, str(port), user_name="alice")
    assert py_webhdfs.read_file("user/alice/city=Orléans/日本") == DATA
    files = fsspec.filesystem("webhdfs", host=host, port=port, user="alice", skip_instance_cache=True)
    assert files.cat_file("/user/alice/city=Orléans/日本") == DATA
    with pytest.raises(PermissionError):
        files.ls("/user/bob")


def test_pyarrow_writes_and_reads_a_partitioned_table(files: fsspec.AbstractFileSystem, folder: str) -> None:
    table = pyarrow.table({"city": ["Orléans", "東京", "Oslo"], "value": [1, 2, 3]})
    pyarrow.parquet.write_to_dataset(table, f"{folder}/table", partition_cols=["city"], filesystem=files)
    back = pyarrow.parquet.read_table(f"{folder}/table", filesystem=files).sort_by("value")
    assert back["value"].to_pylist() == [1, 2, 3]
    assert [str(city) for city in back["city"].to_pylist()] == ["Orléans", "東京", "Oslo"]


def test_pywebhdfs_operations(cluster: StorageCluster, folder: str) -> None:
    host, port = cluster.address
    extra = {"auth": BearerToken(cluster.tokens["alice"])}
    client = PyWebHdfsClient(host, str(port), request_extra_opts=extra)
    path = folder.lstrip("/")
    client.create_file(f"{path}/file", DATA)
    client.append_file(f"{path}/file", b"end")
    assert client.read_file(f"{path}/file") == DATA + b"end"
    assert client.get_file_checksum(f"{path}/file")["FileChecksum"]["algorithm"].startswith("MD5-of-")
    assert client.exists_file_dir(f"{path}/file")
    assert client.make_dir(f"{path}/sub")
    assert client.rename_file_dir(f"{path}/file", f"/{path}/sub/moved")
    with pytest.raises(FileNotFound):
        client.read_file(f"{path}/file")
    listed = client.list_dir(f"{path}/sub")["FileStatuses"]["FileStatus"]
    assert [entry["pathSuffix"] for entry in listed] == ["moved"]


@pytest.mark.service
def test_python_webhdfs_of_nni_with_the_path_of_openpais_proxy(
    cluster: StorageCluster, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "source/deep").mkdir(parents=True)
    (tmp_path / "source/deep/file").write_bytes(DATA)
    program = f"""
import pyhdfs, requests
session = requests.Session()
session.headers["Authorization"] = "Bearer {cluster.tokens["alice"]}"
client = pyhdfs.HdfsClient(
    "{cluster.address[0]}:{cluster.address[1]}", webhdfs_path="/webhdfs/api/v1", requests_session=session,
)
client.mkdirs("{folder}/deep")
client.copy_from_local("{tmp_path}/source/deep/file", "{folder}/deep/file")
client.copy_to_local("{folder}/deep/file", "{tmp_path}/back")
print(client.get_file_checksum("{folder}/deep/file").algorithm)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(python_webhdfs()), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("MD5-of-")
    assert (tmp_path / "back").read_bytes() == DATA
