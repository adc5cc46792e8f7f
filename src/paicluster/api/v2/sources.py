"""Source bundles: tars by their hash, stored whole or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters, NotFound, Unavailable
from paicluster.api.context import authenticate, context
from paicluster.api.responses import json_response
from paicluster.api.v2 import source_patches

_SHA256 = re.compile(r"[0-9a-f]{64}")


def _target(request: Request) -> Path:
    digest = request.path_params["sha256"]
    if not _SHA256.fullmatch(digest):
        raise InvalidParameters("Sources are named by their SHA-256: 64 lower-case hexadecimal digits.")
    return context(request).sources / f"{digest}.tar"


def _base(request: Request) -> Path | None:
    """The bundle that a patch is for; None where the sources come whole."""
    if request.headers.get("content-type") != source_patches.MEDIA_TYPE:
        return None
    digest = request.query_params.get("base", "")
    base = context(request).sources / f"{digest}.tar"
    if not _SHA256.fullmatch(digest) or not base.exists():
        raise NotFound("The sources to be patched are not here.", code="NoSourcesError")
    return base


async def has_sources(request: Request) -> Response:
    await authenticate(request)
    target = _target(request)
    if not target.exists():
        raise NotFound("These sources are not here.", code="NoSourcesError")
    os.utime(target)
    return Response(status_code=200)


async def put_sources(request: Request) -> Response:
    await authenticate(request)
    target = _target(request)
    if target.exists():
        os.utime(target)
        return json_response({"message": "These sources were here already."})
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = target.with_suffix(f".{secrets.token_hex(4)}.part")
    largest = context(request).policies.largest_sources
    base = _base(request)
    digest = hashlib.sha256()
    size = 0
    try:
        with aside.open("wb") as f:
            async for part in request.stream():
                size += len(part)
                if size > largest:
                    raise InvalidParameters(f"Sources may have {largest >> 20} MB at most.", status=413)
                digest.update(part)
                f.write(part)
            f.flush()
            await asyncio.to_thread(os.fsync, f.fileno())
        if base is not None:
            aside, patch = aside.with_suffix(".made.part"), aside
            try:
                made = await asyncio.to_thread(source_patches.apply, patch, base, aside, largest)
            finally:
                patch.unlink()
            if made + ".tar" != target.name:
                raise InvalidParameters("The patch does not make the sources that were announced.")
        elif digest.hexdigest() + ".tar" != target.name:
            raise InvalidParameters(
                "The sources that arrived are not those that were announced: send them again."
            )
        aside.rename(target)
    except OSError as error:
        raise Unavailable(
            f"The cluster could not store the sources: {error.strerror}.", status=507
        ) from error
    finally:
        aside.unlink(missing_ok=True)
    return json_response({"message": "Stored."}, 201)
