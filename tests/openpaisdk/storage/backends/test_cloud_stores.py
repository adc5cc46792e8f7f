"""Every storage command, packs and training data on S3 (SeaweedFS) and Azure Blob (Azurite), for real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from openpaisdk.data import open_pack
from openpaisdk.storage.cloud import open_bucket
from openpaisdk.storage.location import parse_location
from paiprotocol.errors import UsageError
from support.cli_user import CliUser, CommandResult, until
from support.cloud_servers import (
    AZURE_ACCOUNT,
    AZURE_KEY,
    READER_KEY,
    READER_SECRET,
    CloudServer,
    RefusingProxy,
)
from support.faulty_proxy import FaultyProxy
from support.measured_command import measured_pai
from support.storage_fixture import tree_of

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("cloud")]
LARGE = 40 << 20


class CloudUser:
    """A user with a project folder, and a folder of this test in a bucket."""

    def __init__(self, person: CliUser, server: CloudServer):
        self.person = person
        self.server = server
        self.local = person.project
        self.top = f"{server.url}/{self.local.parent.name}-{os.getpid()}"

    def pai(self, *words: str, stdin: str = "", **env: str) -> CommandResult:
        return self.person.pai(*words, stdin=stdin, env={**self.server.env, **env})

    def ok(self, *words: str, stdin: str = "", **env: str) -> CommandResult:
        done = self.pai(*words, stdin=stdin, **env)
        assert done.status == 0, done
        return done

    def write(self, name: str, content: bytes) -> None:
        path = self.local / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        an_hour_ago = time.time() - 3600
        os.utime(path, (an_hour_ago, an_hour_ago))


@pytest.fixture(params=["s3", "azure"])
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> CloudUser:
    return CloudUser(CliUser(tmp_path), request.getfixturevalue(f"{request.param}_server"))


@pytest.fixture
def s3(s3_server: CloudServer, tmp_path: Path) -> CloudUser:
    return CloudUser(CliUser(tmp_path), s3_server)


@pytest.fixture
def slow_proxy(cloud: CloudUser) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(cloud.server.endpoint)
    yield proxy
    proxy.close()


def test_folder_travels_both_ways_and_is_copied_once(cloud: CloudUser) -> None:
    cloud.write("d/large", os.urandom(LARGE))
    cloud.write("d/sub/ä: name?", b"small")
    cloud.write("d/zero", b"")
    (cloud.local / "d/empty/inner").mkdir(parents=True)
    assert "3 files, 40 MB, all new" in cloud.ok("copy", "d", f"{cloud.top}/d").err
    assert "nothing new" in cloud.ok("sync", "d", f"{cloud.top}/d").err
    listed = cloud.ok("listdir", "-R", f"{cloud.top}/d").out.split("\n")
    assert listed[:-1] == ["empty/", "empty/inner/", "large", "sub/", "sub/ä: name?", "zero"]
    cloud.ok("copy", f"{cloud.top}/d", "back")
    assert tree_of(cloud.local / "back") == tree_of(cloud.local / "d")
    assert "nothing new" in cloud.ok("sync", f"{cloud.top}/d", "back").err
    cloud.write("d/sub/ä: name?", b"longer than before")
    (cloud.local / "d/zero").unlink()
    assert "18 B new; 1 to delete" in cloud.ok("sync", "--delete", "d", f"{cloud.top}/d").err
    assert "zero" not in cloud.ok("listdir", f"{cloud.top}/d").out
    assert cloud.ok("copy", f"{cloud.top}/d/sub/ä: name?", "-").out == "longer than before"


def test_folder_is_renamed_and_never_into_itself(cloud: CloudUser, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cloud.server.env.items():
        monkeypatch.setenv(name, value)
    cloud.write("d/sub/b", b"2")
    cloud.write("d/a", b"1")
    cloud.ok("copy", "d", f"{cloud.top}/d")
    location = parse_location(f"{cloud.top}/d")
    bucket = open_bucket(location)
    for target in ("", "/inner"):
        with pytest.raises(UsageError, match="cannot be moved to itself or into itself"):
            bucket.rename(location.path, location.path + target)
    bucket.rename(location.path, location.path + "2")
    cloud.ok("copy", f"{cloud.top}/d2", "back")
    assert tree_of(cloud.local / "back") == tree_of(cloud.local / "d")
    left = cloud.ok("listdir", "-R", cloud.top).out.splitlines()
    # SeaweedFS forgets empty folders some time later.
    assert [name for name in left if not name.endswith("/")] == ["d2/a", "d2/sub/b"]


def test_commands_on_single_files_and_folders(cloud: CloudUser) -> None:
    cloud.ok("copy", "-", f"{cloud.top}/notes.txt", stdin="a line\n")
    assert cloud.ok("copy", f"{cloud.top}/notes.txt", "-").out == "a line\n"
    assert "size:      7 bytes" in cloud.ok("getinfo", f"{cloud.top}/notes.txt").out
    cloud.ok("makedir", f"{cloud.top}/made/inner")
    assert cloud.ok("listdir", cloud.top).out == "made/\nnotes.txt\n"
    assert "7 B" in cloud.ok("disk-usage", cloud.top).out
    cloud.ok("remove", f"{cloud.top}/notes.txt")
    missing = cloud.pai("getinfo", f"{cloud.top}/notes.txt")
    assert (missing.status, missing.err) == (
        2,
        f"pai: {cloud.top}/notes.txt: there is no such file or folder.\n",
    )
    cloud.ok("remove", f"{cloud.top}/made")
    assert cloud.pai("getinfo", f"{cloud.top}/made").status == 2


def test_large_stream_arrives_whole(cloud: CloudUser) -> None:
    cloud.write("large", os.urandom((20 << 20) + 5))
    line = f"pai copy - {cloud.top}/streamed < large && pai copy {cloud.top}/streamed - | cmp - large"
    done = cloud.person.run(["bash", "-c", line], env=cloud.server.env)
    assert done.status == 0, done


def test_killed_upload_continues_with_the_parts_that_arrived(
    cloud: CloudUser, slow_proxy: FaultyProxy
) -> None:
    cloud.write("large", os.urandom(LARGE))
    env = cloud.person.env(**cloud.server.env_through(slow_proxy.url))
    slow_proxy.rate = 4 << 20
    command = ["pai", "copy", "large", f"{cloud.top}/large"]
    running = subprocess.Popen(command, cwd=cloud.local, env=env, stderr=subprocess.DEVNULL)
    # Four connections send the first four of five parts at the same rate: they arrive together.
    until(lambda: slow_proxy.carried > 34 << 20)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert cloud.pai("getinfo", f"{cloud.top}/large").status == 2  # nothing is visible yet
    slow_proxy.cut()
    slow_proxy.rate = 0
    before = slow_proxy.carried
    cloud.ok("copy", "large", f"{cloud.top}/large", **cloud.server.env_through(slow_proxy.url))
    assert slow_proxy.carried - before < 30 << 20
    cloud.ok("copy", f"{cloud.top}/large", "back")
    assert (cloud.local / "back").read_bytes() == (cloud.local / "large").read_bytes()
    assert not list((cloud.person.home / ".openpai").glob("uploads/*"))


def test_changed_source_starts_a_new_upload(cloud: CloudUser, slow_proxy: FaultyProxy) -> None:
    cloud.write("large", os.urandom(LARGE))
    slow_proxy.request_limit, slow_proxy.cuts = 3 << 20, -1
    env = {**cloud.server.env_through(slow_proxy.url), "PAI_TRANSFER_RETRY_S": "1"}
    failed = cloud.pai("copy", "large", f"{cloud.top}/large", **env)
    assert failed.status == 1 and "Run the same command again: it resumes the copy." in failed.err
    content = os.urandom(LARGE)
    cloud.write("large", content)
    cloud.ok("copy", "large", f"{cloud.top}/large")
    cloud.ok("copy", f"{cloud.top}/large", "back")
    assert (cloud.local / "back").read_bytes() == content


def test_throttled_requests_are_repeated(cloud: CloudUser) -> None:
    cloud.write("d/one", b"1" * 1000)
    cloud.write("d/two", os.urandom(9 << 20))
    throttled = ((503, "SlowDown"), (429, "TooManyRequests"))
    proxy = RefusingProxy(cloud.server.endpoint, 4, throttled)
    try:
        env = cloud.server.env_through(proxy.url)
        cloud.ok("copy", "d", f"{cloud.top}/d", **env)
        assert proxy.refused == 4
        for proxy.answers in ([throttled[0]], [throttled[1]]):
            proxy.refusals = -1
            refused = cloud.pai("copy", "d", f"{cloud.top}/e", **env, PAI_TRANSFER_RETRY_S="1")
            assert refused.status == 1 and len(refused.err.splitlines()) == 2
            status = proxy.answers[0][0]
            assert f"The storage {cloud.server.url} throttles requests ({status})." in refused.err
            assert "Run the same command again later" in refused.err
    finally:
        proxy.close()
    assert cloud.ok("listdir", f"{cloud.top}/d").out == "one\ntwo\n"


def test_pack_waits_while_the_storage_throttles(cloud: CloudUser) -> None:
    for number in range(12):
        cloud.write(f"images/{number:02}.bin", os.urandom(1000))
    proxy = RefusingProxy(cloud.server.endpoint, 0, ((503, "SlowDown"), (429, "TooManyRequests")))
    try:
        env = cloud.server.env_through(proxy.url)
        proxy.refusals = 3
        cloud.ok("pack", "images", f"{cloud.top}/packed", **env)
        assert proxy.refused == 3
    finally:
        proxy.close()
    assert len(cloud.ok("listdir", "--records", f"{cloud.top}/packed").out.splitlines()) == 12


def test_expired_session_token_is_one_sentence(s3: CloudUser) -> None:
    """As AWS answers: without a body to HEAD, which gives no reason."""
    proxy = RefusingProxy(s3.server.endpoint, -1, [(400, "ExpiredToken")])
    try:
        expired = s3.pai("listdir", s3.top, **s3.server.env_through(proxy.url))
    finally:
        proxy.close()
    assert expired.status == 1 and len(expired.err.splitlines()) == 2
    assert expired.err.startswith(f"pai: The credentials for {s3.server.url} have expired.\n")
    assert "Renew them: aws sso login" in expired.err


def test_expired_sas_token_is_one_sentence(azure_server: CloudServer, tmp_path: Path) -> None:
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    person = CliUser(tmp_path)

    def listing(hours: int) -> CommandResult:
        token = generate_account_sas(
            AZURE_ACCOUNT,
            AZURE_KEY,
            ResourceTypes(service=True, container=True, object=True),
            AccountSasPermissions(read=True, list=True),
            expiry=datetime.now(UTC) + timedelta(hours=hours),
        )
        env = {
            "AZURE_STORAGE_ACCOUNT": AZURE_ACCOUNT,
            "AZURE_STORAGE_SAS_TOKEN": token,
            "AZURE_STORAGE_SERVICE_ENDPOINT": f"{azure_server.endpoint}/{AZURE_ACCOUNT}",
        }
        return person.pai("listdir", azure_server.url, env=env)

    assert listing(hours=1).status == 0
    expired = listing(hours=-1)
    assert expired.status == 1 and len(expired.err.splitlines()) == 2
    assert expired.err.startswith(f"pai: The credentials for {azure_server.url} have expired.\n")
    assert "Get a new SAS token" in expired.err


def test_wrong_credentials_and_missing_bucket_are_one_sentence(cloud: CloudUser) -> None:
    wrong = cloud.pai("listdir", cloud.top, **cloud.server.wrong_secret)
    assert wrong.status == 1
    assert wrong.err.startswith(f"pai: The storage {cloud.server.url} rejects the credentials (")
    assert "Set A" in wrong.err.splitlines()[1] and len(wrong.err.splitlines()) == 2
    none = cloud.person.pai("listdir", cloud.top, env={"AWS_EC2_METADATA_DISABLED": "true"})
    assert none.status == 1 and none.err.startswith("pai: There ")
    assert "Set A" in none.err.splitlines()[1]
    absent = cloud.pai("listdir", f"{cloud.server.scheme}://no-such-bucket/x")
    assert absent.status == 2
    assert "called 'no-such-bucket' at http://127.0.0.1:" in absent.err
    gone = cloud.pai("listdir", cloud.top, **cloud.server.env_through("http://127.0.0.1:9"))
    assert gone.status == 1 and "cannot be reached at http://127.0.0.1:9" in gone.err


def test_read_only_credentials_cannot_write(s3: CloudUser) -> None:
    reader = {"AWS_ACCESS_KEY_ID": READER_KEY, "AWS_SECRET_ACCESS_KEY": READER_SECRET}
    s3.write("file", b"x")
    denied = s3.pai("copy", "file", f"{s3.top}/file", **reader)
    assert denied.status == 1 and f"{s3.top}/file: access denied." in denied.err


def test_missing_package_is_named_with_the_command_that_installs_it(cloud: CloudUser) -> None:
    package, extra = {"s3": ("s3fs", "s3"), "az": ("adlfs", "azure")}[cloud.server.scheme]
    program = f"import sys; sys.modules[{package!r}] = None; from openpaisdk.cli import pai; sys.exit(pai())"
    done = cloud.person.run([sys.executable, "-c", program, "listdir", cloud.top], env={**cloud.server.env})
    assert done.status == 1
    assert done.err.splitlines()[1].strip() == f"Install it: pip install 'openpaisdk[{extra}]'"


def test_credentials_and_endpoint_of_profile_files(
    s3_server: CloudServer, azure_server: CloudServer, tmp_path: Path
) -> None:
    person = CliUser(tmp_path)
    (person.home / ".aws").mkdir()
    env = s3_server.env
    (person.home / ".aws/credentials").write_text(
        f"[team]\naws_access_key_id = {env['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {env['AWS_SECRET_ACCESS_KEY']}\n"
    )
    (person.home / ".aws/config").write_text(
        f"[profile team]\nregion = us-east-1\nendpoint_url = {s3_server.endpoint}\n"
    )
    assert person.pai("listdir", s3_server.url, env={"AWS_PROFILE": "team"}).status == 0
    unknown = person.pai("listdir", s3_server.url, env={"AWS_PROFILE": "other"})
    assert unknown.status == 1 and "The config profile (other) could not be found" in unknown.err
    (person.home / ".azure").mkdir()
    (person.home / ".azure/config").write_text(f"[storage]\naccount = {AZURE_ACCOUNT}\nkey = {AZURE_KEY}\n")
    endpoint = {"AZURE_STORAGE_SERVICE_ENDPOINT": f"{azure_server.endpoint}/{AZURE_ACCOUNT}"}
    account = {"AZURE_STORAGE_ACCOUNT": AZURE_ACCOUNT, "AZURE_STORAGE_KEY": AZURE_KEY}
    assert person.pai("listdir", azure_server.url, env={**endpoint, **account}).status == 0
    address = f"abfs://{azure_server.bucket}@{AZURE_ACCOUNT}/"
    assert person.pai("listdir", address, env={**endpoint, **account}).status == 0


def test_listing_has_more_objects_than_one_page(s3: CloudUser) -> None:
    for number in range(1005):
        s3.write(f"many/{number:04}", b"")
    assert "1005 files" in s3.ok("copy", "many", f"{s3.top}/many").err
    assert len(s3.ok("listdir", f"{s3.top}/many").out.splitlines()) == 1005
    s3.ok("remove", f"{s3.top}/many")
    assert s3.pai("getinfo", f"{s3.top}/many").status == 2


def test_pack_is_written_read_and_unpacked(cloud: CloudUser) -> None:
    for number in range(30):
        cloud.write(f"images/{number:02}.bin", os.urandom(1000 * number))
    cloud.ok("copy", "images", f"{cloud.top}/images")
    cloud.ok("pack", f"{cloud.top}/images", f"{cloud.top}/packed", "--shard-size", "100k")
    program = (
        "import sys; from openpaisdk.data import open_pack, Records\n"
        "pack = open_pack(sys.argv[1]); assert len(pack) == 30\n"
        "assert pack[7] == open('images/07.bin', 'rb').read()\n"
        "assert pack['29.bin'] == open('images/29.bin', 'rb').read()\n"
    )
    read = cloud.person.run([sys.executable, "-c", program, f"{cloud.top}/packed"], env=cloud.server.env)
    assert read.status == 0, read
    cloud.ok("unpack", f"{cloud.top}/packed", f"{cloud.top}/unpacked")
    cloud.ok("copy", f"{cloud.top}/unpacked", "back")
    assert tree_of(cloud.local / "back") == tree_of(cloud.local / "images")


def test_large_files_are_packed_in_bounded_memory(s3: CloudUser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two shards at a time, as by default, each with several parts."""
    for number in range(4):
        s3.write(f"large/{number}", os.urandom(LARGE))
    for name, value in {**s3.server.env, "HOME": str(s3.person.home)}.items():
        monkeypatch.setenv(name, value)
    words = ("pack", "--jobs", 2, "--shard-size", "16m", s3.local / "large", f"{s3.top}/packed")
    packed = measured_pai(*words, limit_s=300)
    assert packed.status == 0 and packed.memory_mb < 200, packed


def test_record_is_one_request(cloud: CloudUser, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        cloud.write(f"images/{number:02}.bin", os.urandom(1000))
    cloud.ok("pack", "images", f"{cloud.top}/packed", "--shard-size", "20k")
    proxy = RefusingProxy(cloud.server.endpoint, 0)
    for name, value in cloud.server.env_through(proxy.url).items():
        monkeypatch.setenv(name, value)
    try:
        pack = open_pack(f"{cloud.top}/packed")
        last_in_shard = pack._ends[0] - 1
        assert pack[0]  # its shard and the index are open
        for number in (1, last_in_shard):
            before = proxy.requests
            assert pack[number] == (cloud.local / f"images/{number:02}.bin").read_bytes()
            assert proxy.requests - before == 1
    finally:
        proxy.close()


def test_forked_workers_read_records(s3: CloudUser) -> None:
    """A data loader forks after the storage was used: the workers have no threads of their parent."""
    for number in range(20):
        s3.write(f"images/{number:02}.bin", b"%d" % number)
    s3.ok("copy", "images", f"{s3.top}/images")
    s3.ok("pack", f"{s3.top}/images", f"{s3.top}/packed")
    program = (
        "import sys, os; from openpaisdk.data import open_pack\n"
        "pack = open_pack(sys.argv[1]); assert pack[3] == b'3'\n"
        "pid = os.fork()\n"
        "assert pack[4] == b'4'\n"
        "if pid: assert os.waitpid(pid, 0)[1] == 0\n"
        "else: os._exit(0)\n"
    )
    done = s3.person.run([sys.executable, "-c", program, f"{s3.top}/packed"], env=s3.server.env, limit_s=30)
    assert done.status == 0, done


def test_python_storage_opens_a_bucket(cloud: CloudUser) -> None:
    cloud.write("d/file", b"content")
    program = (
        "import sys; from openpaisdk.storage import Storage\n"
        "url, path = sys.argv[1:]; storage = Storage.open(url)\n"
        "storage.upload('d', path); print([each['name'] for each in storage.list(path)])\n"
        "storage.download(path + '/file', 'again'); storage.delete(path); print(storage.exists(path))\n"
    )
    path = "/" + cloud.top.rpartition("/")[2]
    done = cloud.person.run([sys.executable, "-c", program, cloud.server.url, path], env=cloud.server.env)
    assert (done.status, done.out) == (0, "['file']\nFalse\n"), done
    assert (cloud.local / "again").read_bytes() == b"content"
