"""The portal's files: encodings, a package without them, another build while the server runs."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from paicluster.api.portal.bundle import Bundle


def write(folder: Path, name: str, text: str) -> None:
    for suffix, encode in ((".gz", gzip.compress), (".br", lambda content: b"brotli:" + content)):
        (folder / (name + suffix)).write_bytes(encode(text.encode()))


def test_package_without_the_portal_has_no_page(tmp_path: Path) -> None:
    assert Bundle(tmp_path / "absent").index() is None
    assert Bundle(tmp_path / "absent").file("portal-A.js") is None


def test_client_gets_an_encoding_that_it_accepts(tmp_path: Path) -> None:
    write(tmp_path, "index.html", "page")
    file = Bundle(tmp_path).index()
    assert file is not None and file.media_type == "text/html"
    assert file.body("gzip, deflate, br") == (b"brotli:page", "br")
    content, encoding = file.body("gzip;q=1.0")
    assert (gzip.decompress(content), encoding) == (b"page", "gzip")
    assert file.body("") == (b"page", None)


def test_another_build_is_served_and_open_pages_keep_their_files(tmp_path: Path) -> None:
    write(tmp_path, "portal-A.js", "old")
    write(tmp_path, "index.html", "old page")
    bundle = Bundle(tmp_path)
    assert bundle.file("portal-A.js") is not None
    for file in tmp_path.iterdir():
        file.unlink()
    write(tmp_path, "portal-B.js", "new")
    write(tmp_path, "index.html", "new page")
    os.utime(tmp_path / "index.html.gz", ns=(1, 1))
    page = bundle.index()
    assert page is not None and page.body("") == (b"new page", None)
    assert bundle.file("portal-B.js") is not None
    assert bundle.file("portal-A.js") is not None


def test_names_outside_the_folder_are_unknown(tmp_path: Path) -> None:
    write(tmp_path, "index.html", "page")
    write(tmp_path.parent, "secret", "text")
    assert Bundle(tmp_path).file("../secret") is None
