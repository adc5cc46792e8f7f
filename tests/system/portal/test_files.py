"""Files page: browse, upload in parts, download, make, move, delete, preview. Contents stay text."""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import s3fs

from support.browser import Browser, Page
from support.cloud_servers import ACCESS_KEY, SECRET_KEY, seaweedfs
from support.portal import HOLD_PARTS, NewPage, end_sessions, sign_in, url_of
from support.ports import free_port
from support.samba_server import SambaServer
from support.server_fixture import eventually, job
from support.team_cluster import USERS, TeamCluster, add_users

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

UPLOAD = "input[type=file]"
MARKUP = "<img src=x onerror=hacked()>"
MIB = 1 << 20


def put(cluster: TeamCluster, path: str, data: bytes, user: str = "alice") -> None:
    address = f"/webhdfs/v1{quote(path)}?op=CREATE&data=true&overwrite=true"
    created = cluster.ask("PUT", address, data, token=cluster.tokens[user])
    assert created.status == 201, created.text


def content(cluster: TeamCluster, path: str) -> bytes | None:
    found = cluster.get(f"/webhdfs/v1{quote(path)}?op=OPEN&data=true")
    return found.body if found.status == 200 else None


def names_in(cluster: TeamCluster, path: str) -> set[str]:
    listed = cluster.get(f"/webhdfs/v1{quote(path)}?op=LISTSTATUS")
    assert listed.status == 200, listed.text
    return {entry["pathSuffix"] for entry in listed.json()["FileStatuses"]["FileStatus"]}


def shown(page: Page) -> list[str]:
    """Names in the table."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('.files tbody .c-name')].map((e) => e.innerText.trim())"
    )
    return found


def at(folder: str) -> str:
    return f"/files/home{quote(folder)}"


@pytest.fixture
def folder(cluster: TeamCluster, request: pytest.FixtureRequest) -> str:
    """A folder of the storage that this test has alone."""
    path = f"/user/alice/{request.node.name}"
    made = cluster.ask("PUT", f"/webhdfs/v1{quote(path)}?op=MKDIRS")
    assert made.status == 200, made.text
    return path


def test_pages_are_browsed_and_their_address_is_shared(
    new_page: NewPage, cluster: TeamCluster, folder: str
) -> None:
    put(cluster, f"{folder}/100% #1/what?/note.txt", b"deep text")
    page = new_page(at="/files")
    page.wait_for("location.hash === '#/files/home/user/alice'")
    page.open(f"{url_of(cluster)}/#{at(folder)}")
    page.click(".files a", "100% #1")
    page.click(".files a", "what?")
    page.click(".files a", "note.txt")
    page.wait_for_text("deep text")
    other = new_page("alice", at=page.address.partition("#")[2])
    other.wait_for_text("deep text")
    page.click(".crumbs a", "100% #1")
    eventually(lambda: shown(page) == ["what?"], "the folder above")


def test_folder_of_thousands_stays_smooth(new_page: NewPage, cluster: TeamCluster, folder: str) -> None:
    for number in range(2500):
        # Directly on the disk of the storage: a request for each would take long.
        (storage_path(cluster, folder) / f"f{number}").touch()
    page = new_page(at=at(folder))
    page.wait_for_text("2,500 entries")
    eventually(lambda: shown(page)[:11] == [f"f{number}" for number in range(11)], "the first rows")
    assert page.evaluate("document.querySelectorAll('.files tbody tr').length") < 100
    page.evaluate("document.querySelector('.virtual').scrollTop = 1e9")
    page.wait_for_text("f2499")
    # Fewer than were scrolled by, and more than are shown at once.
    page.fill("input[aria-label='Filter by name']", "f24")
    page.wait_for("location.hash.includes('name=f24')")
    eventually(lambda: "f2499" in shown(page) and "f2399" not in shown(page), "the last rows")
    page.fill("input[aria-label='Filter by name']", "f249")
    page.wait_for("document.querySelectorAll('.files tbody tr').length === 11")
    page.wait_for("location.hash.includes('name=f249')")


def storage_path(cluster: TeamCluster, path: str) -> Path:
    found = [root / path.lstrip("/") for root in cluster.home.glob("storage*") if root.is_dir()]
    [existing] = [one for one in found if one.is_dir()]
    return existing


def test_files_are_uploaded_by_button_and_replaced_after_a_question(
    new_page: NewPage, cluster: TeamCluster, folder: str, tmp_path: Path
) -> None:
    large, empty = tmp_path / "large.bin", tmp_path / "empty"
    large.write_bytes(os.urandom(9 * MIB + 17))
    empty.touch()
    page = new_page(at=at(folder))
    page.wait_for_text("This folder is empty")
    page.choose_files(UPLOAD, large, empty)
    page.wait_for_text("2 files uploaded")
    page.wait_for("document.querySelectorAll('.files tbody tr').length === 2")
    assert content(cluster, f"{folder}/large.bin") == large.read_bytes()
    assert content(cluster, f"{folder}/empty") == b""

    large.write_bytes(b"another content")
    page.choose_files(UPLOAD, large)
    page.wait_for_text("The folder has large.bin already.")
    page.click("dialog button", "Cancel")
    page.wait_for("document.querySelector('dialog') === null")
    page.choose_files(UPLOAD, large)
    page.click("dialog button", "Replace")
    eventually(lambda: content(cluster, f"{folder}/large.bin") == b"another content", "the new content")


def test_folder_of_small_files_is_uploaded_in_few_requests(
    new_page: NewPage, cluster: TeamCluster, folder: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    for number in range(500):
        file = data / f"part{number % 5}/f{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(number))
    page = new_page(at=at(folder))
    page.wait_for_text("This folder is empty")
    page.choose_files("input[aria-label='Upload a folder']", data)
    page.wait_for_text("500 files uploaded")
    page.wait_for("document.querySelectorAll('.files tbody tr').length === 1")
    stored = storage_path(cluster, f"{folder}/data")
    assert {file.name: file.read_text() for file in stored.rglob("f*")} == {
        f"f{number}": str(number) for number in range(500)
    }
    sent = "performance.getEntriesByType('resource').filter((one) => one.name.includes('/transfer/'))"
    assert page.evaluate(f"{sent}.length") <= 3
    # The list of uploads leaves by itself.
    page.wait_for("document.querySelector('.uploads') === null")


def test_small_file_that_appeared_meanwhile_is_not_replaced(
    new_page: NewPage, cluster: TeamCluster, folder: str, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("mine")
    page = new_page(at=at(folder))
    page.wait_for_text("This folder is empty")
    created = cluster.ask("PUT", f"/webhdfs/v1{folder}/two?op=CREATE&data=true", b"theirs")
    assert created.status == 201
    page.choose_files(UPLOAD, tmp_path / "one", tmp_path / "two")
    page.wait_for_text("1 file uploaded")
    page.wait_for_text("already exists")
    assert content(cluster, f"{folder}/one") == b"mine"
    assert content(cluster, f"{folder}/two") == b"theirs"


def test_files_and_folders_are_dropped(
    new_page: NewPage, cluster: TeamCluster, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "data/inner").mkdir(parents=True)
    (tmp_path / "data/inner/x").write_text("x")
    (tmp_path / "data/y").write_text("y")
    (tmp_path / "z").write_text("z")
    page = new_page(at=at(folder))
    page.wait_for_text("This folder is empty")
    page.drop_files(".drop .empty", tmp_path / "data", tmp_path / "z")
    page.wait_for_text("3 files uploaded")
    assert names_in(cluster, folder) == {"data", "z"}
    assert content(cluster, f"{folder}/data/inner/x") == b"x"


def test_upload_goes_on_where_a_reload_broke_it_off(
    new_page: NewPage, cluster: TeamCluster, folder: str, tmp_path: Path
) -> None:
    file = tmp_path / "parts.bin"
    file.write_bytes(os.urandom(13 * MIB))
    page = new_page(at=at(folder))
    page.wait_for_text("This folder is empty")
    # The third part is never answered, so that the reload is in the middle.
    count_parts = """(() => { const send = window.fetch; window.parts = [];
      window.fetch = (address, init) => {
        if (init?.method === "PUT" && String(address).includes("/uploads/")) {
          window.parts.push(Number(String(address).split("offset=")[1]));
          if (HOLD && window.parts.length === 3) return new Promise(() => {});
        }
        return send(address, init);
      }; })()"""
    page.evaluate(count_parts.replace("HOLD", "true"))
    page.choose_files(UPLOAD, file)
    page.wait_for("window.parts.length === 3")
    page.wait_for_text("8 MB of 13 MB")
    # The page asks before it is left while something is uploaded; the test does not answer, it leaves.
    leaving = new_page(at=at(folder))
    leaving.wait_for_text("This folder is empty")
    leaving.evaluate(count_parts.replace("HOLD", "false"))
    leaving.choose_files(UPLOAD, file)
    leaving.wait_for_text("1 file uploaded")
    assert leaving.evaluate("window.parts") == [8 * MIB, 12 * MIB]
    assert content(cluster, f"{folder}/parts.bin") == file.read_bytes()


def test_upload_goes_on_after_the_session_has_ended(
    new_page: NewPage, cluster: TeamCluster, folder: str, tmp_path: Path
) -> None:
    file = tmp_path / "long.bin"
    file.write_bytes(os.urandom(9 * MIB))
    page = new_page(at=at(folder))
    page.wait_for_text("This folder is empty")
    page.evaluate(HOLD_PARTS)
    page.choose_files(UPLOAD, file)
    page.wait_for("window.held > 1")
    end_sessions(cluster, "alice")
    page.evaluate("window.release()")
    page.wait_for_text("Your session has ended.")
    sign_in(page, "alice")
    page.wait_for_text("1 file uploaded")
    assert content(cluster, f"{folder}/long.bin") == file.read_bytes()


def test_upload_survives_a_lost_connection_and_can_be_cancelled(
    new_page: NewPage, cluster: TeamCluster, folder: str, tmp_path: Path
) -> None:
    file = tmp_path / "again.bin"
    file.write_bytes(os.urandom(5 * MIB))
    page = new_page(at=at(folder))
    page.wait_for_text("This folder is empty")
    page.evaluate("""(() => { const send = window.fetch; window.isBroken = true;
      window.fetch = (address, init) =>
        window.isBroken && String(address).includes("/uploads/")
          ? Promise.reject(new TypeError("broken")) : send(address, init); })()""")
    page.choose_files(UPLOAD, file)
    page.wait_for_text("Waiting for the cluster")
    page.evaluate("window.isBroken = false")
    page.wait_for_text("1 file uploaded")
    assert content(cluster, f"{folder}/again.bin") == file.read_bytes()
    page.evaluate("window.isBroken = true")
    other = tmp_path / "other.bin"
    other.write_bytes(b"x" * MIB)
    page.choose_files(UPLOAD, other)
    page.wait_for_text("Waiting for the cluster")
    page.click("button", "Cancel other.bin")
    page.wait_for("!document.body.innerText.includes('other.bin')")
    assert names_in(cluster, folder) == {"again.bin"}


def test_files_are_downloaded(new_page: NewPage, cluster: TeamCluster, folder: str) -> None:
    data = os.urandom(MIB)
    put(cluster, f"{folder}/a b.bin", data)
    page = new_page(at=at(folder))
    page.evaluate("HTMLAnchorElement.prototype.click = function () { window.link = this; }")
    page.click("button", "Download a b.bin")
    page.wait_for("window.link?.download === 'a b.bin'")
    link = page.evaluate("window.link.href")
    fetched = cluster.get(link.removeprefix(url_of(cluster)), token=None)
    assert (fetched.status, fetched.body) == (200, data)


def test_folder_is_downloaded_as_a_tar(new_page: NewPage, cluster: TeamCluster, folder: str) -> None:
    put(cluster, f"{folder}/run 1/model.pt", b"weights")
    put(cluster, f"{folder}/run 1/logs/out.txt", b"text")
    page = new_page(at=at(folder))
    page.evaluate("HTMLAnchorElement.prototype.click = function () { window.link = this; }")
    page.click("button", "Download run 1")
    page.wait_for("window.link?.download === 'run 1.tar'")
    link = page.evaluate("window.link.href")
    fetched = cluster.get(link.removeprefix(url_of(cluster)), token=None)
    with tarfile.open(fileobj=io.BytesIO(fetched.body)) as archive:
        assert archive.getnames() == ["run 1", "run 1/model.pt", "run 1/logs", "run 1/logs/out.txt"]


def test_folders_are_made_entries_renamed_moved_and_deleted(
    new_page: NewPage, cluster: TeamCluster, folder: str
) -> None:
    put(cluster, f"{folder}/one", b"1")
    put(cluster, f"{folder}/two", b"2")
    page = new_page(at=at(folder))
    page.click("button", "New folder")
    page.fill("dialog input", "one")
    page.click("dialog button", "Create")
    page.wait_for_text("one exists already.")
    page.fill("dialog input", "sub")
    page.press("Enter")
    eventually(lambda: shown(page) == ["sub", "one", "two"], "the new folder")

    page.click("input", "Select one")
    page.click("button", "Rename or move")
    page.fill("dialog input", "two")
    page.click("dialog button", "Move")
    page.wait_for("document.querySelector('dialog .notice.bad')?.innerText.includes('already exists')")
    page.fill("dialog input", "renamed")
    page.click("dialog button", "Move")
    page.wait_for("document.querySelector('dialog') === null")
    page.click("input", "Select renamed")
    page.click("input", "Select two")
    page.click("button", "Move")
    page.fill("dialog input", "absent")
    page.click("dialog button", "Move")
    page.wait_for_text(f"There is no folder {folder}/absent.")
    page.fill("dialog input", "sub")
    page.click("dialog button", "Move")
    page.wait_for("document.querySelectorAll('.files tbody tr').length === 1")
    eventually(lambda: names_in(cluster, f"{folder}/sub") == {"renamed", "two"}, "both in the folder")

    page.click("input", "Select sub")
    page.click("button", "Delete")
    page.wait_for_text("cannot be undone")
    page.click("dialog button", "Cancel")
    page.wait_for("document.querySelector('dialog') === null")
    assert names_in(cluster, folder) == {"sub"}
    page.click("button", "Delete")
    page.click("dialog button", "Delete")
    page.wait_for_text("This folder is empty")
    assert names_in(cluster, folder) == set()


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_hostile_files_are_shown_as_text(new_page: NewPage, cluster: TeamCluster, folder: str) -> None:
    name = f"{MARKUP}.csv"
    put(cluster, f"{folder}/{name}", f"{MARKUP},b\n<script>hacked()</script>,=cmd()\n".encode())
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": [MARKUP]},
        {"output_type": "display_data", "data": {"text/html": [MARKUP], "image/png": '"><b>'}},
        {"output_type": "display_data", "data": {"image/png": base64.b64encode(png(3, 2)).decode()}},
    ]
    cells = [
        {"cell_type": "markdown", "source": [f"# {MARKUP}"]},
        {"cell_type": "code", "execution_count": 7, "source": "x", "outputs": outputs},
    ]
    put(cluster, f"{folder}/n.ipynb", json.dumps({"cells": cells, "nbformat": 4}).encode())
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="5" height="4"><script>parent.hacked()</script></svg>'
    )
    put(cluster, f"{folder}/p.svg", svg.encode())
    put(cluster, f"{folder}/h.html", f"<html>{MARKUP}<script>hacked()</script>".encode())
    put(cluster, f"{folder}/b.dat", bytes(range(256)))

    page = new_page(at=at(folder))
    page.wait_for_text("5 entries")
    page.evaluate("window.hacked = () => { window.isHacked = true; }")
    page.click(".files a", name)
    page.wait_for("document.querySelector('.csv td:nth-child(3)')?.innerText === '=cmd()'")
    cell = page.evaluate("document.querySelector('.csv td:nth-child(2)').innerText")
    assert cell == "<script>hacked()</script>"
    assert page.evaluate("document.querySelector('.csv th:nth-child(2)').innerText") == MARKUP
    assert (
        page.evaluate("document.querySelector('[aria-current=page].crumb, .crumbs [aria-current]').innerText")
        == name
    )

    def show(entry: str) -> None:
        page.evaluate(f"location.hash = {json.dumps('#' + at(f'{folder}/{entry}'))}")

    show("n.ipynb")
    page.wait_for("document.querySelector('.cell img')?.naturalWidth === 3")
    outputs_shown = page.evaluate("[...document.querySelectorAll('.cell pre')].map((e) => e.innerText)")
    assert outputs_shown == ["x", MARKUP, MARKUP]
    assert page.evaluate("document.querySelector('.cell h2').innerText") == MARKUP
    show("p.svg")
    page.wait_for_text("5 × 4 pixels")
    show("h.html")
    page.wait_for("document.querySelector('pre.config')?.innerText.includes('<script>')")
    show("b.dat")
    page.wait_for_text("No preview of this file")
    assert page.evaluate("document.querySelectorAll('main script, main img[src=x]').length") == 0
    assert not page.evaluate("window.isHacked === true")


def test_markdown_is_formatted_and_loads_nothing(
    new_page: NewPage, cluster: TeamCluster, folder: str
) -> None:
    dot = base64.b64encode(png(3, 2)).decode()
    text = "\n\n".join(
        [
            "# Title",
            "Some *words* and [a page](https://pages.example/x).",
            "<script>hacked()</script>",
            '<img src=x onerror="hacked()"> in a line <b onclick="hacked()">bold</b>',
            '<iframe src="javascript:parent.hacked()"></iframe>',
            "[run](javascript:hacked()) [text](data:text/html,<script>hacked()</script>)",
            "![far](https://tracker.example/dot.png) ![near](/api/v2/picture)",
            "![drawn](data:image/svg+xml;base64,PHN2Zz4=)",
            f"![dot](data:image/png;base64,{dot})",
            "```py\ndef f():\n    return 1\n```",
        ]
    )
    put(cluster, f"{folder}/README.md", text.encode())
    put(cluster, f"{folder}/deep.md", (">" * 100_000 + "_a_" * 20_000).encode())
    page = new_page(at=at(folder))
    page.wait_for_text("2 entries")
    page.evaluate("window.hacked = () => { window.isHacked = true; }")
    page.click(".files a", "README.md")
    page.wait_for("document.querySelector('.markdown .tok-keyword')?.innerText === 'def'")
    assert page.evaluate("document.querySelector('.markdown h2').innerText") == "Title"
    page.wait_for("document.querySelector('.markdown img')?.naturalWidth === 3")
    inside = "[...document.querySelectorAll('.markdown *')]"
    names = set(page.evaluate(f"{inside}.map((one) => one.localName)"))
    assert names == {"h2", "p", "em", "a", "img", "pre", "span"}
    links = page.evaluate("[...document.querySelectorAll('.markdown a')].map((one) => [one.href, one.rel])")
    assert links == [["https://pages.example/x", "noopener noreferrer"]]
    attributes = page.evaluate(f"{inside}.flatMap((one) => one.getAttributeNames())")
    assert not [one for one in attributes if one.startswith("on") or one == "style"]
    for shown in ("<script>hacked()</script>", "[image far: https://tracker.example/dot.png]"):
        assert shown in page.text
    requested = page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
    assert not [one for one in requested if "example" in one or one.endswith("/api/v2/picture")]
    assert not page.evaluate("window.isHacked === true")
    page.click("button", "Source")
    page.wait_for("document.querySelector('pre.config')?.innerText.startsWith('# Title')")
    assert "view=source" in page.address
    page.reload()
    page.wait_for("document.querySelector('pre.config')?.innerText.startsWith('# Title')")
    page.evaluate(f"location.hash = {json.dumps('#' + at(f'{folder}/deep.md'))}")
    page.wait_for("document.body.innerText.includes('_a__a_')")


def test_code_has_colours(new_page: NewPage, cluster: TeamCluster, folder: str) -> None:
    code = 'def f():\n    return "<b>"  # why\n'
    put(cluster, f"{folder}/f.py", code.encode())
    page = new_page(at=at(f"{folder}/f.py"))
    page.wait_for("document.querySelector('pre.config .tok-comment')?.innerText === '# why'")
    assert page.evaluate("document.querySelector('pre.config').textContent") == code
    pieces = "[...document.querySelectorAll('pre.config span')]"
    colours = page.evaluate(f"{pieces}.map((one) => getComputedStyle(one).color)")
    assert len(set(colours)) >= 3


def test_hostile_files_do_not_stop_the_page(new_page: NewPage, cluster: TeamCluster, folder: str) -> None:
    """Each of these is shown in a moment; as a whole they take a browser minutes, or for ever."""
    uses = [f'<use href="#a{at}"/>' * 10 for at in range(9)]
    groups = [f'<g id="a{at}">{inner}</g>' for at, inner in enumerate(uses, 1)]
    svg = f'<svg xmlns="http://www.w3.org/2000/svg"><g id="a0"><rect/></g>{"".join(groups)}</svg>'
    notebook = {"cells": [{"source": "x", "outputs": [{"text": "y" * 100_000}]}, *[{}] * 500_000]}
    files = {
        "multiplied.svg": (svg, "could take a browser very long"),
        "cells.ipynb": (json.dumps(notebook), "Only the beginning of the notebook"),
        "lines.txt": ("\n" * (1 << 20), "Only the first lines"),
        "line.csv": ('"' * (1 << 19) + "\r" * (1 << 19), "Download"),
    }
    for name, (text, _) in files.items():
        put(cluster, f"{folder}/{name}", text.encode())
    page = new_page(at=at(folder))
    page.wait_for_text(f"{len(files)} entries")
    for name, (_, shown) in files.items():
        page.evaluate(f"location.hash = {json.dumps('#' + at(f'{folder}/{name}'))}")
        page.wait_for_text(shown)


def test_large_text_shows_its_start(new_page: NewPage, cluster: TeamCluster, folder: str) -> None:
    put(cluster, f"{folder}/long.txt", ("ü" * 79 + "\n").encode() * 10_000)
    page = new_page(at=at(f"{folder}/long.txt"))
    page.wait_for_text("The first 1 MB of 1.5 MB.")
    page.click("button", "Delete")
    page.click("dialog button", "Delete")
    page.wait_for_text("This folder is empty")


def test_files_of_others_are_refused_in_a_sentence(new_page: NewPage, cluster: TeamCluster) -> None:
    put(cluster, "/user/bob/secret", b"s", user="bob")
    page = new_page(at="/files/home/user/bob")
    page.wait_for_text("Permission denied")
    page.evaluate("location.hash = '#/files/home/user/alice/nowhere'")
    page.wait_for_text("nowhere")
    page.wait_for("document.querySelector('.notice.bad') !== null")
    page.evaluate("location.hash = '#/files/elsewhere/x'")
    page.wait_for_text("There is no storage called elsewhere")


def test_outputs_of_a_job_lead_to_the_files(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("leaves", "echo trained > $PAI_OUTPUT_DIR/model.txt; mkdir $PAI_OUTPUT_DIR/more"))
    cluster.run(job("leaves-nothing", "true"))
    page = new_page(at="/jobs/alice~leaves?tab=outputs")
    page.click(".files a", "model.txt")
    page.wait_for_text("trained")
    page.wait_for("location.hash === '#/files/home/user/alice/jobs/leaves/output/model.txt'")
    page.evaluate("location.hash = '#/jobs/alice~leaves-nothing?tab=outputs'")
    page.wait_for_text("The job left no files")


def test_files_work_at_phone_width(
    new_page: NewPage, cluster: TeamCluster, folder: str, tmp_path: Path
) -> None:
    file = tmp_path / ("a-name-that-is-longer-than-the-screen-is-wide-" * 3)
    file.write_text("small")
    page = new_page(None, at=at(folder), width=390)
    sign_in(page, "alice")
    page.wait_for_text("This folder is empty")
    page.choose_files(UPLOAD, file)
    page.wait_for("document.querySelectorAll('.files tbody tr').length === 1")
    root = "document.documentElement"
    assert page.evaluate(f"{root}.scrollWidth - {root}.clientWidth") <= 0
    page.click(".files a")
    page.wait_for_text("small")


STORAGES = """
home: .
listen: {port: 0}
allow-shared-account: true
storages:
  - {name: own, type: own, path: storage, read-only: true}
  - {name: nas, type: mount, path: /mnt/nas}
  - {name: lake, type: hdfs, url: "http://127.0.0.1:PORT"}
  - {name: office, type: nfs, server: files, path: /team}
"""


def test_other_storages_say_how_to_reach_them(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> None:
    home = tmp_path_factory.mktemp("storages") / "home"
    add_users(home)
    (home / "cluster.yaml").write_text(STORAGES.replace("PORT", str(free_port())))
    cluster = TeamCluster(home, ("--config", str(home / "cluster.yaml")))
    try:
        cluster.start()
        cluster.tokens = {"admin": cluster.log_in("admin")}
        with browser.page() as page:
            page.open(f"{url_of(cluster)}/#/files")
            sign_in(page, "alice")
            page.wait_for("location.hash === '#/files/own/user/alice'")
            page.wait_for_text("This folder is empty")
            assert "Upload" not in page.text and "New folder" not in page.text
            page.choose("select[aria-label=Storage]", "nas")
            page.wait_for_text("a folder on the machines of the cluster, which this page cannot show")
            page.wait_for_text("/mnt/nas")
            page.choose("select[aria-label=Storage]", "office")
            page.wait_for_text("a share of a file server, which this page cannot show")
            page.wait_for_text("storages: [{name: office}]")
            page.choose("select[aria-label=Storage]", "lake")
            page.wait_for_text("The storage lake cannot be read")
            page.wait_for_text("connection refused")
    finally:
        cluster.close()


def change_remote_files(page: Page, folder: Path, stored: Callable[[], set[str]]) -> None:
    """Upload, make, move and delete in the folder `notes` of a storage, whose files are ``stored``."""
    large, small = folder / "large.bin", folder / "small.txt"
    large.write_bytes(os.urandom(9 * MIB))
    small.write_text("small")
    page.click(".crumbs a", "notes")
    page.choose_files(UPLOAD, large, small)
    page.wait_for_text("2 files uploaded")
    page.wait_for("document.querySelectorAll('.files tbody tr').length === 3")
    assert {"notes/large.bin", "notes/small.txt"} <= stored()
    page.click("button", "New folder")
    page.fill("dialog input", "sub")
    page.press("Enter")
    page.wait_for("document.querySelectorAll('.files tbody tr').length === 4")
    page.click("input", "Select large.bin")
    page.click("input", "Select small.txt")
    page.click("button", "Move")
    page.fill("dialog input", "sub")
    page.click("dialog button", "Move")
    page.wait_for("document.querySelectorAll('.files tbody tr').length === 2")
    assert {"notes/sub/large.bin", "notes/sub/small.txt"} <= stored()
    page.click("input", "Select sub")
    page.click("button", "Delete")
    page.wait_for_text("cannot be undone")
    page.click("dialog button", "Delete")
    page.wait_for_text("sub is deleted.")
    # The same was said of the storage before.
    page.wait_for("document.querySelectorAll('.files tbody tr').length === 1")
    assert stored() == {"notes/<b>read me.txt"}


def test_storage_in_a_cloud_is_browsed_and_changed_with_the_credentials_of_the_cluster(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> None:
    folder = tmp_path_factory.mktemp("cloud")
    home = folder / "home"
    add_users(home)
    with seaweedfs(folder) as s3:
        store = s3fs.S3FileSystem(key=ACCESS_KEY, secret=SECRET_KEY, endpoint_url=s3.endpoint)
        store.pipe_file(f"{s3.bucket}/vision/notes/<b>read me.txt", b"<b>from the cloud</b>")
        credentials = home / "s3.yaml"
        credentials.write_text(f"access-key-id: {ACCESS_KEY}\nsecret-access-key: {SECRET_KEY}\n")
        credentials.chmod(0o600)
        bucket = f"type: s3, bucket: {s3.bucket}, region: us-east-1, endpoint-url: '{s3.endpoint}'"
        (home / "cluster.yaml").write_text(
            "storages:\n  - {name: own, type: own}\n"
            f"  - {{name: sets, {bucket}, prefix: vision, credentials: {credentials}}}\n"
            f"  - {{name: bare, {bucket}}}\n"
            f"  - {{name: fixed, {bucket}, prefix: vision, credentials: {credentials}, read-only: true}}\n"
        )
        cluster = TeamCluster(home, ("--config", str(home / "cluster.yaml"), "--allow-shared-account"))
        try:
            cluster.start()
            cluster.tokens = {"admin": cluster.log_in("admin")}
            with browser.page() as page:
                page.open(f"{url_of(cluster)}/#/files/sets/")
                sign_in(page, "alice")
                page.click(".files a", "notes")
                page.wait_for_text("<b>read me.txt")
                page.evaluate("HTMLAnchorElement.prototype.click = function () { window.link = this; }")
                page.click("button", "Download <b>read me.txt")
                page.wait_for("window.link?.download === '<b>read me.txt'")
                link = page.evaluate("window.link.href").removeprefix(url_of(cluster))
                assert cluster.get(link, token=None).body == b"<b>from the cloud</b>"
                page.evaluate("location.hash = document.querySelector('.files td.c-name a').hash")
                page.wait_for("document.querySelector('pre.config')?.innerText === '<b>from the cloud</b>'")
                assert SECRET_KEY not in page.evaluate("document.documentElement.outerHTML")
                prefix = f"{s3.bucket}/vision/"
                change_remote_files(
                    page, folder, lambda: {key.removeprefix(prefix) for key in store.find(prefix)}
                )
                page.choose("select[aria-label=Storage]", "fixed")
                page.click(".files a", "notes")
                page.wait_for_text("<b>read me.txt")
                assert page.evaluate(f"document.querySelector('{UPLOAD}') === null")
                assert "New folder" not in page.text
                page.choose("select[aria-label=Storage]", "bare")
                page.wait_for_text("The cluster has no credentials for it, so this page cannot show it")
                page.wait_for_text("pai listdir pai://CLUSTER/bare/")
        finally:
            cluster.close()


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@contextmanager
def cluster_with(tmp_path_factory: pytest.TempPathFactory, settings: str) -> Iterator[TeamCluster]:
    home = tmp_path_factory.mktemp("remote") / "home"
    add_users(home)
    (home / "cluster.yaml").write_text(settings)
    cluster = TeamCluster(home, ("--config", str(home / "cluster.yaml"), "--allow-shared-account"))
    try:
        cluster.start()
        cluster.tokens = {user: cluster.log_in(user) for user in USERS}
        yield cluster
    finally:
        cluster.close()


def test_hdfs_and_share_are_browsed_and_changed(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser, samba_server: SambaServer
) -> None:
    name = "<b>read me.txt"
    share = samba_server.folder / "portal"
    (share / "notes").mkdir(parents=True)
    (share / "notes" / name.replace("<", "(").replace(">", ")")).write_text("<b>of the share</b>")
    credentials = tmp_path_factory.mktemp("credentials") / "samba.yaml"
    credentials.touch(mode=0o600)
    credentials.write_text(f"username: {samba_server.username}\npassword: {samba_server.password}\n")
    with cluster_with(tmp_path_factory, "authentication: {trust-user-name: true}\n") as hdfs:
        put(hdfs, f"/user/alice/notes/{name}", b"<b>of the HDFS</b>")
        put(hdfs, "/user/bob/secret", b"x", user="bob")
        with (
            cluster_with(
                tmp_path_factory,
                "storages:\n  - {name: own, type: own}\n"
                f"  - {{name: lake, type: hdfs, url: '{url_of(hdfs)}'}}\n"
                f"  - {{name: office, type: samba, address: '{samba_server.address}/portal',\n"
                f"     credentials: {credentials}}}\n",
            ) as cluster,
            browser.page() as page,
        ):
            page.open(f"{url_of(cluster)}/#/files/lake/user/alice")
            sign_in(page, "alice")
            page.click(".files a", "notes")
            page.click(".files a", name)
            page.wait_for("document.querySelector('pre.config')?.innerText === '<b>of the HDFS</b>'")
            stored = storage_path(hdfs, "/user/alice")
            change_remote_files(page, tmp_path_factory.mktemp("sent"), lambda: files_in(stored))
            page.open(f"{url_of(cluster)}/#/files/lake/user/bob")
            page.wait_for_text("permission denied")

            page.choose("select[aria-label=Storage]", "office")
            page.click(".files a", "notes")
            page.click(".files a", "(b)read me.txt")
            page.wait_for("document.querySelector('pre.config')?.innerText === '<b>of the share</b>'")
            assert samba_server.password not in page.evaluate("document.documentElement.outerHTML")
            change_remote_files(
                page,
                tmp_path_factory.mktemp("sent"),
                lambda: {path.replace("(b)", "<b>") for path in files_in(share)},
            )
