"""Shards are read by other programs: WebDataset, TFRecord readers, tar and Hadoop; and we read Hadoop's."""

import io
import json
import os
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from crc32c import crc32c

from openpaisdk.data import open_pack
from openpaisdk.data.formats.sequence_file import SequenceFileWriter
from support.hadoop_client import HadoopClient
from support.packed_data import contents, make_files, pack
from support.paths import REPOSITORY
from support.third_party_clients import readers_of_shards

pytestmark = [pytest.mark.slow, pytest.mark.service]


def run_python(code: str, *arguments: str) -> str:
    """Run a program with the packages that read shards."""
    environment = {"PYTHONPATH": str(readers_of_shards()), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def samples(folder: Path) -> Path:
    folder.mkdir()
    for i in range(25):
        (folder / f"{i:04}.cls").write_text(str(i % 10))
        (folder / f"{i:04}.bin").write_bytes(bytes([i]) * 500)
    return folder


def test_webdataset_reads_tar_shards(tmp_path: Path) -> None:
    manifest = pack(samples(tmp_path / "source"), tmp_path / "pack", shard_bytes=10_000)
    last = len(manifest.shards) - 1
    assert last > 1
    code = """
import sys, webdataset
data = webdataset.WebDataset(sys.argv[1], shardshuffle=False)
for sample in data: print(sample["__key__"], sample["cls"].decode(), len(sample["bin"]))
"""
    shown = run_python(code, f"{tmp_path}/pack/shard-{{000000..{last:06}}}.tar").splitlines()
    assert shown == [f"{i:04} {i % 10} 500" for i in range(25)]


def test_tar_lists_and_extracts_tar_shards(tmp_path: Path) -> None:
    source = make_files(tmp_path / "source")
    pack(source, tmp_path / "pack", shard_bytes=1 << 30)
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "xf", tmp_path / "pack/shard-000000.tar", "-C", tmp_path / "out"], check=True)
    assert contents(tmp_path / "out") == contents(source)


def test_another_implementation_reads_tfrecords_and_computes_the_same_checksums(tmp_path: Path) -> None:
    source = make_files(tmp_path / "source")
    pack(source, tmp_path / "pack", ("tfrecord", "none"), shard_bytes=1 << 30)
    shard = tmp_path / "pack/shard-000000.tfrecord"
    code = """
import struct, sys
from tfrecord.reader import tfrecord_iterator
from tfrecord.writer import TFRecordWriter
with open(sys.argv[2], "wb") as out:
    for record in tfrecord_iterator(sys.argv[1]):
        content = bytes(record)
        length = struct.pack("<Q", len(content))
        for part in (length, TFRecordWriter.masked_crc(length), content, TFRecordWriter.masked_crc(content)):
            out.write(part)
"""
    run_python(code, str(shard), str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == shard.read_bytes()


def test_another_implementation_reads_the_examples_of_convert_to_records(tmp_path: Path) -> None:
    script = REPOSITORY / "examples/digits/convert_to_records.py"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [sys.executable, script, "--directory", tmp_path / "records", "--count", "20"]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    code = """
import sys
from tfrecord.reader import tfrecord_loader
for one in tfrecord_loader(sys.argv[1], None, {"image_raw": "byte", "label": "int"}):
    print(one["label"][0], bytes(one["image_raw"]).hex())
"""
    shown = run_python(code, str(tmp_path / "records/shard-000000.tfrecord")).split()
    listed = subprocess.run(
        [sys.executable, "-c", "import digits\nfor l, p in digits.samples(20): print(l, p.hex())"],
        cwd=script.parent,
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown == listed.stdout.split()


# -- Hadoop --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="hadoop")
def hadoop_fixture(tmp_path_factory) -> HadoopClient:
    return HadoopClient(tmp_path_factory.mktemp("hadoop"))


READ = """
import java.io.*;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.*;

public class Read {
    public static void main(String[] arguments) throws Exception {
        var out = new DataOutputStream(new BufferedOutputStream(System.out));
        var file = SequenceFile.Reader.file(new Path(arguments[0]));
        try (var reader = new SequenceFile.Reader(new Configuration(), file)) {
            var key = new Text();
            var value = new BytesWritable();
            while (reader.next(key, value)) {
                out.writeInt(key.getLength());
                out.write(key.getBytes(), 0, key.getLength());
                out.writeInt(value.getLength());
                out.write(value.getBytes(), 0, value.getLength());
            }
        }
        out.flush();
    }
}
"""
WRITE = """
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.*;
import org.apache.hadoop.io.SequenceFile.*;
import org.apache.hadoop.io.compress.*;

public class Write {
    public static void main(String[] arguments) throws Exception {
        CompressionType type = CompressionType.valueOf(arguments[1]);
        CompressionCodec codec = type == CompressionType.NONE ? null
            : (CompressionCodec) Class.forName(arguments[2]).getDeclaredConstructor().newInstance();
        var configuration = new Configuration();
        if (codec instanceof DefaultCodec) ((DefaultCodec) codec).setConf(configuration);
        if (codec instanceof BZip2Codec) ((BZip2Codec) codec).setConf(configuration);
        try (var writer = SequenceFile.createWriter(configuration, Writer.file(new Path(arguments[0])),
                Writer.keyClass(Text.class), Writer.valueClass(BytesWritable.class),
                codec == null ? Writer.compression(type) : Writer.compression(type, codec))) {
            for (int i = 0; i < 3000; i++) {
                byte[] value = new byte[i];
                Arrays.fill(value, (byte) i);
                writer.append(new Text("key " + i), new BytesWritable(value));
            }
        }
    }
}
"""


def records_of(data: bytes) -> dict[str, bytes]:
    stream = io.BytesIO(data)
    found = {}
    while head := stream.read(4):
        key = stream.read(struct.unpack(">i", head)[0]).decode("utf-8", "surrogateescape")
        found[key] = stream.read(struct.unpack(">i", stream.read(4))[0])
    return found


@pytest.mark.parametrize(
    "compression", [name for name in SequenceFileWriter.compressions if not name.endswith("zstd")]
)
def test_hadoop_reads_our_sequence_files(hadoop: HadoopClient, tmp_path: Path, compression: str) -> None:
    source = make_files(tmp_path / "source", 300)
    pack(source, tmp_path / "pack", ("sequencefile", compression), shard_bytes=1 << 30)
    shard = f"file://{tmp_path}/pack/shard-000000.seq"
    assert records_of(hadoop.run("Read", READ, shard)) == contents(source)


def test_hadoop_prints_our_sequence_files_as_text(hadoop: HadoopClient, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/greeting").write_text("hello")
    pack(tmp_path / "source", tmp_path / "pack", ("sequencefile", "block-deflate"))
    shown = hadoop.shell("-text", f"file://{tmp_path}/pack/shard-000000.seq")
    assert shown == b"greeting\t68 65 6c 6c 6f\n"


@pytest.mark.parametrize(
    ("kind", "codec"),
    [
        ("NONE", ""),
        *((kind, codec) for kind in ("RECORD", "BLOCK") for codec in ("DefaultCodec", "BZip2Codec")),
    ],
)
def test_we_read_sequence_files_of_hadoop(
    hadoop: HadoopClient, tmp_path: Path, kind: str, codec: str
) -> None:
    file = tmp_path / "hadoop.seq"
    hadoop.run("Write", WRITE, f"file://{file}", kind, f"org.apache.hadoop.io.compress.{codec}")
    opened = open_pack(file)
    assert len(opened) == 3000
    assert dict(opened) == {f"key {i}": bytes([i % 256]) * i for i in range(3000)}
    assert opened["key 2999"] == opened[2999] == bytes([2999 % 256]) * 2999


def test_hadoop_lists_and_reads_our_archives(hadoop: HadoopClient, tmp_path: Path) -> None:
    source = make_files(tmp_path / "source")
    for path in source.iterdir():
        if b"\xe9" in bytes(path):
            path.unlink()  # Java has no such names
    pack(source, tmp_path / "files.har", ("har", "none"), shard_bytes=20_000)
    archive = f"har://{tmp_path}/files.har"
    listed = hadoop.shell("-ls", "-R", "-C", archive).decode().splitlines()
    names = {str(path.relative_to(source)) for path in source.rglob("*")}
    assert {line.removeprefix(archive + "/") for line in listed} == names
    hadoop.shell("-copyToLocal", archive, str(tmp_path / "out"))
    copied = {name: data for name, data in contents(tmp_path / "out").items() if not name.endswith(".crc")}
    assert copied == contents(source)


def test_archive_built_from_the_description_is_read(tmp_path: Path) -> None:
    """Names with blanks and percent signs, several parts, and entries in the order of their hashes."""
    folder = tmp_path / "other.har"
    folder.mkdir()
    (folder / "part-0").write_bytes(b"firstsecond")
    (folder / "part-1").write_bytes(b"third")
    properties = "1700000000000+420+alice+staff"
    (folder / "_index").write_text(
        f"%2F dir 1700000000000+493+alice+staff 0 0 d a+b \n"
        f"%2Fd%2F100%25 file part-1 0 5 {properties} \n"
        f"%2Fa+b file part-0 5 6 {properties} \n"
        f"%2Fd dir 1700000000000+493+alice+staff 0 0 100%25 c \n"
        f"%2Fd%2Fc file part-0 0 5 {properties} \n"
    )
    (folder / "_masterindex").write_text("3 \n0 2147483647 0 300 \n")
    assert dict(open_pack(folder)) == {"d/c": b"first", "a b": b"second", "d/100%": b"third"}


def test_index_is_described_by_its_first_lines(tmp_path: Path) -> None:
    """The documented layout, read without our code."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a").write_text("content of a")
    (tmp_path / "source/b").write_text("and of b")
    pack(tmp_path / "source", tmp_path / "pack")
    magic, line, rest = (tmp_path / "pack/shard-000000.tar.index").read_bytes().split(b"\n", 2)
    header = json.loads(line)
    assert magic == b"PAI shard index 2" and header["records"] == 2
    *places, crc_a, crc_b, _, end = struct.unpack_from("<4Q2I2Q", rest)
    offsets, lengths = places[:2], places[2:]
    shard = (tmp_path / "pack/shard-000000.tar").read_bytes()
    assert [shard[o : o + n] for o, n in zip(offsets, lengths, strict=True)] == [b"content of a", b"and of b"]
    assert (crc_a, crc_b) == (crc32c(b"content of a"), crc32c(b"and of b"))
    assert rest[struct.calcsize("<4Q2I2Q") :][:end] == b"ab"
    with tarfile.open(tmp_path / "pack/shard-000000.tar") as archive:
        assert [member.offset_data for member in archive] == offsets
