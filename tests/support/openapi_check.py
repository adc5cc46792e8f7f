"""Validates responses against the server's OpenAPI document: status, media type and schema."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache, cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from paicluster.api.portal import openpai_addresses
from paiprotocol._version import __version__

_DOCUMENT_URI = "urn:description"


# Hadoop's protocol, and the private protocols of our client and tasks.
_UNDESCRIBED_PATHS = ("/webhdfs/", "/api/v2/transfer", "/api/v2/attempts/", "/portal/")
# Pages for browsers.
_PORTAL_PATHS = frozenset({"/", *(route.path for route in openpai_addresses.route)})
# Limits in tests about something else: validated responses per schema, and size of a response.
_MAX_CHECKED = 25
_MAX_CHECKED_BYTES = 256 << 10


@cache
def current_description(*, thorough: bool = False) -> Description:
    """The description by the current code, shared by all tests: to make one takes longer than many of them.

    Without ``thorough`` it is for tests about something else.
    """
    return Description(current_document(), thorough=thorough)


@cache
def current_document() -> dict[str, Any]:
    """The document of the current code."""
    from paicluster.api.routes import DESCRIBED_ROUTES
    from paicluster.api.wire.openapi import openapi_json

    document: dict[str, Any] = json.loads(openapi_json(DESCRIBED_ROUTES, f"v{__version__}"))
    return document


class Description:
    """An OpenAPI document that responses are validated against. ``seen`` collects the validated ones."""

    def __init__(self, document: dict[str, Any], *, thorough: bool = True):
        self.document = document
        self._thorough = thorough
        self._checked_counts: Counter[str] = Counter()
        registry: Registry[Any] = Registry()
        self._registry = registry.with_resource(_DOCUMENT_URI, Resource.from_contents(document, DRAFT202012))
        self._validators: dict[str, Draft202012Validator] = {}
        self.seen: set[tuple[str, str, int]] = set()

    @cached_property
    def _templates(self) -> list[tuple[re.Pattern[str], str]]:
        # Paths with fewer parameters first, as in the router.
        ordered = sorted(self.document["paths"], key=lambda path: (path.count("{"), -len(path)))
        return [(re.compile(_pattern(path)), path) for path in ordered]

    def check(self, method: str, url: str, status: int, headers: dict[str, str], body: bytes) -> None:
        """Fail when a response is not described."""
        # CORS preflight requests are not described.
        if method == "OPTIONS":
            return
        # Slashes at the beginning count as one.
        path = "/" + unquote(urlsplit(url).path).lstrip("/")
        if path.startswith("/rest-server/"):
            path = path.removeprefix("/rest-server")
        where = f"{method} {url[:120]} -> {status}"
        if path.startswith(_UNDESCRIBED_PATHS) or path in _PORTAL_PATHS:
            return
        template = self._template(path, method.lower()) or self._template(path.rstrip("/"), method.lower())
        if template is None:
            is_unknown = status == 404 or (status == 405 and "allow" in headers)
            assert is_unknown, f"{where}: the route is not described"
            return
        operation = self.document["paths"][template][method.lower()]
        self.seen.add((method, template, status))
        response = operation["responses"].get(str(status))
        assert response is not None, (
            f"{where}: {template} has no such status in the description; {body[:300]!r}"
        )
        contents = response.get("content")
        if contents is None:
            assert not body, f"{where}: described without a body, but has {body[:100]!r}"
            return
        media = headers.get("content-type", "").partition(";")[0].strip()
        assert media in contents, f"{where}: {media!r} is not among {sorted(contents)}"
        if media == "application/json" and "schema" in contents[media]:
            slash = template.replace("~", "~0").replace("/", "~1")
            pointer = f"/paths/{slash}/{method.lower()}/responses/{status}/content/application~1json/schema"
            schema = f"{_DOCUMENT_URI}#{pointer}"
            self._checked_counts[schema] += 1
            if self._thorough or (
                self._checked_counts[schema] <= _MAX_CHECKED and len(body) <= _MAX_CHECKED_BYTES
            ):
                self._validate(schema, json.loads(body), where)

    def _template(self, path: str, method: str) -> str | None:
        return next(
            (
                template
                for pattern, template in self._templates
                if method in self.document["paths"][template] and pattern.fullmatch(path)
            ),
            None,
        )

    def _validate(self, reference: str, value: Any, where: str) -> None:
        validator = self._validators.get(reference)
        if validator is None:
            validator = Draft202012Validator(
                {"$ref": reference.replace("{", "%7B").replace("}", "%7D")}, registry=self._registry
            )
            self._validators[reference] = validator
        error = next(iter(validator.iter_errors(value)), None)
        if error is not None:
            place = "/".join(map(str, error.absolute_path)) or "(root)"
            raise AssertionError(f"{where}: {place}: {error.message[:600]}")


def _pattern(path: str) -> str:
    parts = re.split(r"(\{\w+\})", path)
    # The parameter `path` contains slashes.
    return "".join(
        ".+" if part == "{path}" else "[^/]+" if part.startswith("{") else re.escape(part) for part in parts
    )
