"""Holds answers against the description the server serves of itself: status, type and shape."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

_HERE = "urn:description"


# Hadoop's own, and what our client and our tasks have with our cluster alone.
_NOT_DESCRIBED = ("/webhdfs/", "/api/v2/transfer", "/api/v2/attempts/")
# Where a test is about something else, so many answers of a kind are looked into, and none that is larger.
_ENOUGH = 25
_LARGE = 256 << 10


@lru_cache(maxsize=1)
def of_the_code() -> Description:
    """The description that a server of this code serves, for tests that are about something else."""
    from paicluster.api.app import ROUTES
    from paicluster.api.openapi import openapi_json

    return Description(json.loads(openapi_json(ROUTES, "v0")), thorough=False)


class Description:
    """`/openapi.json`, and whether what came back is what it promised."""

    def __init__(self, document: dict[str, Any], *, thorough: bool = True):
        self.document = document
        self._thorough = thorough
        self._looked_into: Counter[str] = Counter()
        registry: Registry[Any] = Registry()
        self._registry = registry.with_resource(_HERE, Resource.from_contents(document, DRAFT202012))
        self._validators: dict[str, Draft202012Validator] = {}
        self.seen: set[tuple[str, str, int]] = set()

    @cached_property
    def _templates(self) -> list[tuple[re.Pattern[str], str]]:
        # The more of an address is fixed, the sooner it is tried, as the router does.
        ordered = sorted(self.document["paths"], key=lambda path: (path.count("{"), -len(path)))
        return [(re.compile(_pattern(path)), path) for path in ordered]

    def hold(self, method: str, url: str, status: int, headers: dict[str, str], body: bytes) -> None:
        """Fails when this answer was not described."""
        # What browsers ask first, and what is answered in another dialect, is not described.
        if method == "OPTIONS" or status == 501:
            return
        path = unquote(urlsplit(url).path)
        if path.startswith("/rest-server/"):
            path = path.removeprefix("/rest-server")
        where = f"{method} {url[:120]} -> {status}"
        if path.startswith(_NOT_DESCRIBED):
            return
        template = self._template(path, method.lower()) or self._template(path.rstrip("/"), method.lower())
        if template is None:
            assert status == 404, f"{where}: no such route is described"
            return
        operation = self.document["paths"][template][method.lower()]
        self.seen.add((method, template, status))
        answer = operation["responses"].get(str(status))
        assert answer is not None, (
            f"{where}: the description of {template} knows no such status; {body[:300]!r}"
        )
        contents = answer.get("content")
        if contents is None:
            assert not body, f"{where}: described without a body, and has {body[:100]!r}"
            return
        media = headers.get("content-type", "").partition(";")[0].strip()
        assert media in contents, f"{where}: {media!r} is not among {sorted(contents)}"
        if media == "application/json" and "schema" in contents[media]:
            slash = template.replace("~", "~0").replace("/", "~1")
            schema = (
                f"{_HERE}#/paths/{slash}/{method.lower()}/responses/{status}/content/application~1json/schema"
            )
            self._looked_into[schema] += 1
            if self._thorough or (self._looked_into[schema] <= _ENOUGH and len(body) <= _LARGE):
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
            place = "/".join(map(str, error.absolute_path)) or "(the whole)"
            raise AssertionError(f"{where}: {place}: {error.message[:600]}")


def _pattern(path: str) -> str:
    parts = re.split(r"(\{\w+\})", path)
    # A path within an address has slashes of its own.
    return "".join(
        ".+" if part == "{path}" else "[^/]+" if part.startswith("{") else re.escape(part) for part in parts
    )
