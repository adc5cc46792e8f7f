"""TypeScript types of the portal, generated from the types in `/openapi.json` that its routes use.

``python -m paicluster.api.portal_types portal/src/api_types.ts`` writes the file; with ``--check`` before the
path it fails if the file is stale.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paicluster.api.routes import DESCRIBED_ROUTES
from paicluster.api.wire.openapi import openapi_json

_HEAD = "// Types of the REST API, generated from /openapi.json by `make portal-types`.\n"
_PREFIX = "/api/v2/"
_REFERENCE = "#/components/schemas/"
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
_PRIMITIVES = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}

Schema = Mapping[str, Any]


def portal_types() -> str:
    """The TypeScript file: an interface for each type that a route of version 2 uses, by name."""
    document = json.loads(openapi_json(DESCRIBED_ROUTES, ""))
    schemas: Mapping[str, Schema] = document["components"]["schemas"]
    routes = [operations for path, operations in document["paths"].items() if path.startswith(_PREFIX)]
    return _HEAD + "".join(_declaration(name, schemas[name]) for name in sorted(_used_names(routes, schemas)))


def _used_names(routes: Any, schemas: Mapping[str, Schema]) -> set[str]:
    """Names of the schemas that the routes refer to, and those that these refer to."""
    names: set[str] = set()
    pending = list(_references(routes))
    while pending:
        name = pending.pop()
        if name not in names:
            names.add(name)
            pending += _references(schemas[name])
    return names


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref":
                yield item.removeprefix(_REFERENCE)
            else:
                yield from _references(item)


def _declaration(name: str, schema: Schema) -> str:
    return f"\n{_comment(schema)}export interface {name} {_object(schema)}\n"


def _comment(schema: Schema, indent: str = "") -> str:
    text = " ".join(schema.get("description", "").replace("``", "`").split())
    return f"{indent}/** {text} */\n" if text else ""


def _object(schema: Schema, indent: str = "") -> str:
    """The fields of an object; those that it may have beside them are left out."""
    inner = indent + "  "
    required = schema.get("required", ())
    fields = "".join(
        f"{_comment(field, inner)}{inner}readonly {_key(name)}{'' if name in required else '?'}: "
        f"{_type(field, inner)};\n"
        for name, field in schema["properties"].items()
    )
    return f"{{\n{fields}{indent}}}"


def _key(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else json.dumps(name)


def _type(schema: Schema, indent: str) -> str:
    if "$ref" in schema:
        reference: str = schema["$ref"]
        return reference.removeprefix(_REFERENCE)
    if "anyOf" in schema:
        return " | ".join(_type(choice, indent) for choice in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    match schema.get("type"):
        case "array":
            return _array(schema, indent)
        case "object" if "properties" in schema:
            return _object(schema, indent)
        case "object":
            values = schema.get("additionalProperties")
            return f"Readonly<Record<string, {_type(values or {}, indent)}>>"
        case None:
            return "unknown"
        case name:
            return _PRIMITIVES[name]


def _array(schema: Schema, indent: str) -> str:
    if "prefixItems" in schema:
        return f"readonly [{', '.join(_type(item, indent) for item in schema['prefixItems'])}]"
    item = _type(schema.get("items") or {}, indent)
    is_compound = " | " in item or item.startswith("readonly ")
    return f"readonly ({item})[]" if is_compound else f"readonly {item}[]"


def main(arguments: list[str]) -> int:
    *options, name = arguments
    path = Path(name)
    current = portal_types()
    if options != ["--check"]:
        path.write_text(current, encoding="utf-8")
    elif not path.exists() or path.read_text(encoding="utf-8") != current:
        print(f"{path} is not what /openapi.json describes. Type: make portal-types", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
