"""Previews of the files page: images, Markdown, code, large and hostile files. Contents stay text."""

from __future__ import annotations

import base64
import json
import struct
import zlib

import pytest

from support.portal import NewPage
from support.portal_files import at, put
from support.team_cluster import TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]


MARKUP = "<img src=x onerror=hacked()>"


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
