"""Job protocol pages: examples are valid, and every key is described."""

from __future__ import annotations

import re

import pytest

from paiprotocol.jobs import check_job, read_any_job
from paiprotocol.jobs.schema_nodes import Fields, ListOf, MappingOf, Node, Nullable, Variant
from paiprotocol.jobs.v1 import JOB_V1
from paiprotocol.jobs.v2_schema import JOB_V2
from support.paths import REPOSITORY

DOCS = REPOSITORY / "docs"
V2 = (DOCS / "job-protocol.md").read_text()
V1 = (DOCS / "job-protocol-v1.md").read_text()
EXAMPLES = [
    block for block in re.findall(r"```(?:yaml|json)\n(.*?)```", V2 + V1, re.DOTALL) if "taskRoles" in block
]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_is_a_valid_job(example):
    assert check_job(example) == ()
    read_any_job(example, strict=True)


def keys(node: Node):
    if isinstance(node, Nullable):
        yield from keys(node.inner)
    elif isinstance(node, ListOf | MappingOf):
        yield from keys(node.item)
    elif isinstance(node, Variant):
        for variant in node.variants.values():
            yield from keys(variant)
    elif isinstance(node, Fields):
        for name, field in node.fields.items():
            yield name
            yield from keys(field)


# Written by machines only; the page names the key they stand under.
INTERNAL = {"randomStr", "logDirectories"}


@pytest.mark.parametrize(("page", "node"), [(V2, JOB_V2), (V1, JOB_V1)], ids=["v2", "v1"])
def test_every_key_is_described(page, node):
    missing = sorted(
        {name for name in keys(node) if f"`{name}`" not in page and f"`{name}:" not in page} - INTERNAL
    )
    assert [name for name in missing if not re.search(rf"`[^`]*\b{re.escape(name)}\b[^`]*`", page)] == []
