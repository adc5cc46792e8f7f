"""Modules that have moved, by their names in version 0.5: in saved results, and for SDKs of that version."""

import importlib
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pairuntime.task.webhdfs import WebHdfsError
from pairuntime.transport.call_format import FormatError
from pairuntime.transport.http1 import HttpProtocolError

# Written by version 0.5.
SAVED = {
    WebHdfsError: b"\x80\x02cpairuntime.task.webhdfs\nWebHdfsError\nq\x00X\x0c\x00\x00\x00no such fileq\x01"
    b"\x85q\x02Rq\x03}q\x04(X\x06\x00\x00\x00statusq\x05M\x94\x01X\x04\x00\x00\x00kindq\x06X\x15\x00\x00\x00"
    b"FileNotFoundExceptionq\x07X\x04\x00\x00\x00hintq\x08h\x08ub.",
    HttpProtocolError: b"\x80\x02cpairuntime.task.http_connection\nHttpError\nq\x00X\x0c\x00\x00\x00"
    b"no such fileq\x01\x85q\x02Rq\x03.",
    FormatError: b"\x80\x02cpairuntime.task.call_format\nFormatError\nq\x00X\x0c\x00\x00\x00no such fileq\x01"
    b"\x85q\x02Rq\x03.",
}


@pytest.mark.parametrize("kind", SAVED)
def test_saved_error_is_read_as_what_is_raised_now(kind: type[Exception]) -> None:
    saved = pickle.loads(SAVED[kind])
    assert type(saved) is kind and str(saved) == "no such file"
    if isinstance(saved, WebHdfsError):
        assert (saved.status, saved.kind, saved.hint) == (404, "FileNotFoundException", "hint")


# What an SDK of version 0.5 imports, in a task, of the runtime of its cluster.
IMPORTED_BY_SDK = {
    "pairuntime.session.messages": "CHUNK_BYTES PROTOCOL STDERR STDIN_WINDOW_BYTES STDOUT encode decode",
    "pairuntime.session.relay": "PROTOCOL Relay RelayLoop Stream WebSocketStream",
    "pairuntime.session.websocket": "VERSION MessageReader WebSocketError accept_key frame key_for new_key",
    "pairuntime.task.call_format": "CANCELLED CANCELLED_CLAIM DONE RESULT_OF_CALL STORED_VALUE claim_path"
    " claims_folder pack_calls pack_result process_file read_call read_result results_folder shared_result",
}


@pytest.mark.parametrize("module", IMPORTED_BY_SDK)
def test_older_sdk_finds_what_it_imports(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in IMPORTED_BY_SDK[module].split() if not hasattr(found, name)] == []


def test_sdk_in_a_call_of_a_cluster_with_an_older_runtime(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pairuntime.pyz", "w") as archive:
        archive.writestr("pairuntime/__init__.py", "")
        archive.writestr("pairuntime/task/__init__.py", "")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'pairuntime.pyz')!r})\n"
        "import pairuntime.task\n"
        "assert '.pyz' in pairuntime.__file__\n"
        "import openpaisdk\n"
        "print(openpaisdk.Cluster.__name__)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "Cluster\n", ran.stderr
