"""Rules of object stores that need no server: addresses, accounts, part sizes, times, upload records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from openpaisdk.cli.storage.pack import _default_jobs
from openpaisdk.storage.backends import connection_pool
from openpaisdk.storage.backends.azure_account import AzureAccount, find_account, split_host
from openpaisdk.storage.backends.local import LocalBackend
from openpaisdk.storage.backends.object_store import (
    MAX_OBJECT_PARTS,
    ObjectInfo,
    ObjectPage,
    ObjectSource,
    ObjectStore,
    object_part_size,
)
from openpaisdk.storage.backends.s3 import S3Backend, S3Options
from openpaisdk.storage.backends.s3_upload_records import UploadRecord
from openpaisdk.storage.file_info import is_unchanged
from openpaisdk.storage.location import AZURE, S3, parse_location
from paiprotocol.errors import ConfigError, ConnectionFailed, TooManyRequests, Unauthorized, UsageError

SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AZURE_CONFIG_DIR", raising=False)
    for name in [name for name in os.environ if name.startswith(("AZURE_STORAGE_", "AWS_"))]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("text", "kind", "host", "path"),
    [
        ("s3://data/a/b", S3, "data", "/a/b"),
        ("s3a://data", S3, "data", "/"),
        ("az://box/a//b/", AZURE, "box", "/a/b"),
        ("abfss://box@team.dfs.core.windows.net/x", AZURE, "box@team.dfs.core.windows.net", "/x"),
    ],
)
def test_addresses_in_a_cloud(text: str, kind: str, host: str, path: str) -> None:
    location = parse_location(text)
    assert (location.kind, location.host, location.path) == (kind, host, path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s3:///x", "'s3:///x' has no bucket: write s3://BUCKET/path."),
        ("az://", "'az://' has no container: write az://CONTAINER/path."),
        ("s3:/data/x", "'s3:/data/x' has one slash where an address has two: write s3://data/x."),
        ("s3://data/../x", "'s3://data/../x': a path on a storage must not contain '..'."),
    ],
)
def test_wrong_addresses_in_a_cloud(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_location(text)
    assert error.value.message == message


def test_object_is_unchanged_if_it_was_written_after_its_source() -> None:
    written = (10, 5 * SECOND, 0)
    assert is_unchanged((10, 5 * SECOND - 1, 0), written, keeps_times=False)
    assert not is_unchanged((10, 5 * SECOND + 1, 0), written, keeps_times=False)  # in the same second
    assert not is_unchanged((11, 1 * SECOND, 0), written, keeps_times=False)


@pytest.mark.parametrize("size", [1 << 20, 1 << 30, 1 << 40, 5 << 40])
def test_no_object_has_too_many_parts(size: int) -> None:
    length = object_part_size(size)
    assert length >= 8 << 20 and size / length <= MAX_OBJECT_PARTS


def test_names_that_an_object_store_rejects() -> None:
    store = ObjectStore("s3://data", "folder")
    assert store.invalid_name_reason("/a: ä?") == ""
    assert store.invalid_name_reason("/\udcff") == "it is not UTF-8"
    assert store.invalid_name_reason("/" + "x" * 1100) == "it is longer than 1024 bytes"


def test_account_of_an_address_is_used_with_its_own_credentials_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "mine")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    container, addressed = split_host("box@other.dfs.core.windows.net")
    assert container == "box"
    found = find_account(addressed, "az://box")
    assert (found.name, found.key, found.endpoint) == ("other", "", "https://other.blob.core.windows.net")
    mine = find_account(split_host("box")[1], "az://box")
    assert mine.as_connection_string() == (
        "BlobEndpoint=https://mine.blob.core.windows.net;AccountName=mine;AccountKey=a2V5"
    )


@pytest.mark.parametrize("secret", ["SAS_TOKEN", ""])
def test_token_is_sent_to_azure_only(monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    if secret:
        monkeypatch.setenv(f"AZURE_STORAGE_{secret}", "sv=1&sig=x")
    elsewhere = split_host("box@mine.blob.example.com")[1]
    with pytest.raises(ConfigError, match=r"az://x is at mine\.blob\.example\.com, which is not Azure"):
        find_account(elsewhere, "az://x")
    monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", "https://mine.blob.example.com")
    assert find_account(elsewhere, "az://x").endpoint == "https://mine.blob.example.com"


@pytest.mark.parametrize(
    ("ends", "has_expired"),
    [("2020-01-01T00:00:00Z", True), ("2020-01-01", True), ("2999-01-01T00%3A00%3A00Z", False), ("x", False)],
)
def test_token_says_when_it_expires(ends: str, has_expired: bool) -> None:
    token = f"sv=2020&se={ends}&sig=x%3D"
    assert AzureAccount("mine", sas_token=token).has_expired() is has_expired
    connection = AzureAccount(connection_string=f"BlobEndpoint=https://x;SharedAccessSignature={token}")
    assert connection.has_expired() is has_expired
    assert not AzureAccount("mine", key="a2V5").has_expired()


def test_account_of_the_configuration_file(tmp_path: Path) -> None:
    with pytest.raises(Unauthorized, match="There is no account for az://box"):
        find_account(AzureAccount(), "az://box")
    (tmp_path / ".azure").mkdir()
    (tmp_path / ".azure/config").write_text("[storage]\naccount = filed\nsas_token = ?sv=1&sig=%2B\n")
    found = find_account(AzureAccount(), "az://box")
    assert (found.name, found.sas_token) == ("filed", "sv=1&sig=%2B")


def test_upload_record_belongs_to_one_copy_at_a_time() -> None:
    first = UploadRecord.open("s3://data/x")
    assert first is not None and first.read() == ("", "")
    first.write("content", "id-1")
    assert UploadRecord.open("s3://data/x") is None
    first.close(keep=True)
    again = UploadRecord.open("s3://data/x")
    assert again is not None and again.read() == ("content", "id-1")
    again.close(keep=False)
    fresh = UploadRecord.open("s3://data/x")
    assert fresh is not None and fresh.read() == ("", "")
    fresh.close(keep=False)


class FakeS3(S3Backend):
    """A bucket that creates uploads, and nothing else; ``fails``: not even these."""

    fails = False

    def request(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.requests = [*getattr(self, "requests", ()), method]
        if self.fails:
            raise ConnectionFailed("The connection was lost.")
        return {"UploadId": "id-1"}


def test_upload_that_cannot_begin_releases_its_record() -> None:
    store = FakeS3("data", S3Options())
    store.fails = True
    with pytest.raises(ConnectionFailed):
        store.begin_upload("x", "content", resumes=True)
    record = UploadRecord.open(store.canonical("/x"))
    assert record is not None
    record.close(keep=False)


def test_unfinished_upload_without_a_record_is_aborted() -> None:
    store = FakeS3("data", S3Options())
    first, second = (store.begin_upload("x", "content", resumes=True) for _ in range(2))
    second.close()
    second.close()
    first.close()
    assert store.requests == [*["create_multipart_upload"] * 2, "abort_multipart_upload"]


@pytest.mark.parametrize(("processors", "local", "cloud"), [(1, 1, 1), (16, 4, 2)])
def test_fewer_shards_are_packed_at_a_time_with_a_cloud(
    monkeypatch: pytest.MonkeyPatch, processors: int, local: int, cloud: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    machine, bucket = LocalBackend(), FakeS3("data", S3Options())
    assert _default_jobs(machine, machine) == local
    assert _default_jobs(machine, bucket) == _default_jobs(bucket, machine) == cloud


class LargeS3(S3Backend):
    """A bucket with one object of 20 MiB."""

    sizes: tuple[int, ...] = ()

    def read_range(self, key: str, offset: int, length: int, etag: str) -> bytes:
        self.sizes += (length >> 20,)
        return bytes(length)


def test_object_is_read_in_small_pieces_for_a_pack_only() -> None:
    store = LargeS3("data", S3Options())
    source = ObjectSource(store, "/x", ObjectInfo("x", 20 << 20, 2.0, "1"))
    assert sum(map(len, source.chunks(0, source.size))) == source.size and store.sizes == (16, 4)
    store.sizes = ()
    assert sum(map(len, source.small_chunks())) == source.size and store.sizes == (4, 4, 4, 4, 4)


class ListedS3(S3Backend):
    """A bucket with the objects a, b and a/c, listed on two pages."""

    def list_page(self, prefix: str, page: str, *, flat: bool, limit: int = 1000) -> ObjectPage:
        files = {name: ObjectInfo(prefix + name, 1, 2.0, "") for name in "abc"}
        if prefix:
            return ObjectPage([files["c"]], [], "")
        if page:
            return ObjectPage([files["b"]], ["a/"], "")
        return ObjectPage([files["a"]], [], "2")


@pytest.mark.parametrize("max_files", [0, 1])
def test_name_of_an_object_and_of_a_folder_is_a_folder(max_files: int) -> None:
    store = ListedS3("data", S3Options())
    assert [(entry.name, entry.is_folder) for entry in store.list_folder("/")] == [("a", True), ("b", False)]
    found = list(store.walk("/", max_files))
    assert {f"{each.path}/{name}" for each in found for name in each.files} == {"/b", "a/c"}
    assert [each.folders for each in found if each.folders] == [["a"]]


def test_expired_upload_records_are_removed(tmp_path: Path) -> None:
    first = UploadRecord.open("s3://data/x")
    assert first is not None
    first.write("content", "id-1")
    first.close(keep=True)
    (path,) = (tmp_path / ".openpai/uploads").iterdir()
    os.utime(path, (1, 1))
    other = UploadRecord.open("s3://data/y")
    assert other is not None and not path.exists()
    other.close(keep=False)


def test_throttled_requests_have_a_window_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_TRANSFER_RETRY_S", "0")
    calls = []

    def throttled() -> None:
        calls.append(1)
        raise TooManyRequests("Slow down.", retry_after_s=0.0)

    with pytest.raises(TooManyRequests):
        connection_pool.with_retries(throttled)
    assert len(calls) == 1
    monkeypatch.delenv("PAI_TRANSFER_RETRY_S")
    pauses: list[float] = []
    monkeypatch.setattr(connection_pool.time, "sleep", pauses.append)

    def throttled_three_times() -> str:
        calls.append(1)
        if len(calls) < 5:
            raise TooManyRequests("Slow down.", retry_after_s=2.0)
        return "done"

    assert connection_pool.with_retries(throttled_three_times) == "done"
    assert pauses == [2.0, 4.0, 4.0]
