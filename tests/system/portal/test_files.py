"""Files page: browse, upload in parts, download, make, move, delete."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from urllib.parse import quote

import pytest

from support.browser import Page
from support.portal import HOLD_PARTS, NewPage, end_sessions, sign_in, url_of
from support.portal_files import MIB, UPLOAD, at, put, storage_path
from support.server_fixture import eventually, job
from support.team_cluster import TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

MARKUP = "<img src=x onerror=hacked()>"


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
