"""Storages elsewhere in the files page: in a cloud, on HDFS, on a share, and those it cannot reach."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import s3fs

from support.browser import Browser, Page
from support.cloud_servers import ACCESS_KEY, SECRET_KEY, seaweedfs
from support.portal import sign_in, url_of
from support.portal_files import MIB, UPLOAD, put, storage_path
from support.ports import free_port
from support.samba_server import SambaServer
from support.team_cluster import USERS, TeamCluster, add_users

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]


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
