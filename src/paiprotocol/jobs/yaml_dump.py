"""Plain data as readable YAML that all YAML versions parse the same way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from paiprotocol.jobs.schema_nodes import Fields, ListOf, MappingOf, Node, Nullable, Variant
from paiprotocol.jobs.yaml_nodes import reads_as_text

_ORDINARY = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]*")


class _Dumper(yaml.SafeDumper):
    """Lists indented under their key, long text in blocks, no aliases, no wrapping."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if not _ORDINARY.fullmatch(text):
        # Only escapes preserve these characters: YAML treats some of them as line breaks.
        style = '"'
    elif "\n" in text:
        style = "|"
    elif not reads_as_text(text):
        # A YAML 1.1 or 1.2 parser would read it as a number, date or boolean.
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dump_yaml(data: Mapping[str, Any]) -> str:
    """A job as YAML, known keys in the order of the protocol, then the others in their own order."""
    from paiprotocol.jobs.versions import job_version

    if job_version(data) == 1:
        from paiprotocol.jobs.v1 import JOB_V1 as NODE
    else:
        from paiprotocol.jobs.v2_schema import JOB_V2 as NODE
    return dump_plain(_ordered(data, NODE))


def dump_plain(data: Any) -> str:
    """Any plain data as YAML, in its own order."""
    text: str = yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31, default_flow_style=False
    )
    return text


def _ordered(value: Any, node: Node | None) -> Any:
    if isinstance(node, Nullable):
        node = node.inner
    if isinstance(value, Mapping):
        if isinstance(node, Variant):
            node = node.variants.get(str(value.get(node.key)))
        known: Iterable[str] = node.fields if isinstance(node, Fields) else ()
        keys = [key for key in known if key in value]
        keys += [key for key in value if key not in set(keys)]
        return {key: _ordered(value[key], _inside(node, key)) for key in keys}
    if isinstance(value, list | tuple):
        item = node.item if isinstance(node, ListOf) else None
        return [_ordered(each, item) for each in value]
    return value


def _inside(node: Node | None, key: str) -> Node | None:
    if isinstance(node, Fields):
        return node.fields.get(key)
    return node.item if isinstance(node, MappingOf) else None
