"""Routes of source archives: tar files by their SHA-256, stored atomically.

An archive belongs to the users who uploaded it. To all others it does not exist: its hash is in the config of
a job, which every user can read. Equal archives are stored once.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import OCTET_STREAM, Body, Bound, Query, Routes, Text
from paicluster.api.v2 import source_patches
from paicluster.api.wire.base import Message
from paicluster.api.wire.request_body import body_limit
from paicluster.api.wire.responses import Reply
from paicluster.auth.tokens import Identity
from paicluster.files.usage import Charge
from paicluster.store import source_owners
from paiprotocol.errors import NO_SOURCES, InvalidParameters, NotFound, Unavailable

route = Routes("sources")

_SHA256 = re.compile(r"[0-9a-f]{64}")


def _target(request: Request) -> Path:
    digest = request.path_params["sha256"]
    if not _SHA256.fullmatch(digest):
        raise InvalidParameters("Sources are named by their SHA-256: 64 lower-case hexadecimal digits.")
    return context(request).jobs.sources / f"{digest}.tar"


def _is_own(request: Request, identity: Identity, archive: Path) -> bool:
    """Whether the archive is stored and belongs to the caller."""
    return archive.exists() and context(request).store.read_inline(
        lambda conn: source_owners.is_owner(conn, archive.stem, identity.username)
    )


def _base(request: Request, identity: Identity) -> Path | None:
    """The base archive of a patch; None when the body is a whole archive."""
    if request.headers.get("content-type") != source_patches.MEDIA_TYPE:
        return None
    digest = request.query_params.get("base", "")
    base = context(request).jobs.sources / f"{digest}.tar"
    if not _SHA256.fullmatch(digest) or not _is_own(request, identity, base):
        raise NotFound("The base archive of the patch is not on this cluster.", code=NO_SOURCES)
    return base


@route(
    "HEAD /api/v2/sources/{sha256}",
    authority=JOBS,
    summary="Check whether the cluster has a source archive",
    returns={200: None},
    errors=(400,),
    other_methods=405,
)
async def has_sources(request: Request) -> Response:
    identity = await authenticate(request)
    target = _target(request)
    if not _is_own(request, identity, target):
        raise NotFound("These sources are not on this cluster.", code=NO_SOURCES)
    os.utime(target)
    return Response(status_code=200)


@route(
    "PUT /api/v2/sources/{sha256}",
    authority=JOBS,
    summary="Store a source archive (tar) under its SHA-256",
    query=(Query("base", description="SHA-256 of the base archive when the body is a patch."),),
    body=Body(
        {
            OCTET_STREAM: Text(OCTET_STREAM, binary=True),
            "application/vnd.openpai.sources-patch": Text(
                "application/vnd.openpai.sources-patch", binary=True
            ),
        },
        limit=Bound.SOURCES_SETTING,
    ),
    status=201,
    returns={200: Message},
    errors=(507,),
    other_methods=405,
)
async def put_sources(request: Request) -> Reply[Message]:
    identity = await authenticate(request)
    target = _target(request)
    if _is_own(request, identity, target):
        os.utime(target)
        return Reply(Message("These sources were already stored."), 200)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    staging_file = target.with_suffix(f".{secrets.token_hex(4)}.part")
    max_bytes = body_limit(request)
    base = _base(request, identity)
    digest = hashlib.sha256()
    size = 0
    charge = Charge(context(request).files.own.storage.usage, identity.username, "the sources")
    try:
        with staging_file.open("wb") as f:
            async for part in request.stream():
                size += len(part)
                if size > max_bytes:
                    raise InvalidParameters(f"Sources may have {max_bytes >> 20} MB at most.", status=413)
                charge.grow(f.fileno(), len(part))
                digest.update(part)
                f.write(part)
            f.flush()
            await asyncio.to_thread(os.fsync, f.fileno())
        if base is not None:
            staging_file, patch = staging_file.with_suffix(".made.part"), staging_file
            try:
                patched = await asyncio.to_thread(source_patches.apply, patch, base, staging_file, max_bytes)
            finally:
                patch.unlink()
            size = staging_file.stat().st_size
            with staging_file.open("rb") as f:
                charge.grow(f.fileno(), max(0, size - charge.size))
            if patched + ".tar" != target.name:
                raise InvalidParameters("The result of the patch does not match the announced SHA-256.")
        elif digest.hexdigest() + ".tar" != target.name:
            raise InvalidParameters(
                "The received sources do not match the announced SHA-256: send them again."
            )
        staging_file.rename(target)
        charge.keep(size)
    except OSError as error:
        raise Unavailable(
            f"The cluster could not store the sources: {error.strerror}.", status=507
        ) from error
    finally:
        charge.release()
        staging_file.unlink(missing_ok=True)
    await context(request).store.write(
        lambda conn: source_owners.add_owner(conn, target.stem, identity.username)
    )
    return Reply(Message("Stored."))
