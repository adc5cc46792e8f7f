"""Route table of PaddleCloud's dialect. Paths have no trailing slash: the gateway strips it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.dialect import SHARED_JOBS_PATH
from paicluster.api.paddlecloud import chunks, files, jobs, login, registries, workers
from paicluster.api.responses import json_response

Handler = Callable[[Request], Awaitable[Response]]

# Paths that OpenPAI does not have.
ROUTES: list[tuple[str, list[str], Handler]] = [
    ("/api-token-auth", ["POST"], login.api_token_auth),
    ("/api/v1/token2user", ["GET"], login.token2user),
    (SHARED_JOBS_PATH, ["DELETE"], jobs.kill),
    ("/v1/submit", ["POST"], jobs.submit_v1),
    ("/v2/submit", ["POST"], jobs.submit_v2),
    # The same jobs as a resource of Kubernetes, as PaddleCloud's last servers had them.
    ("/api/v1/trainingjobs", ["GET"], jobs.list_jobs),
    ("/api/v1/trainingjobs", ["POST"], jobs.submit),
    ("/api/v1/trainingjobs", ["DELETE"], jobs.kill),
    ("/api/v1/pservers", ["GET"], jobs.list_pservers),
    ("/api/v1/workers", ["GET"], workers.list_workers),
    ("/api/v1/logs", ["GET"], workers.logs),
    ("/api/v1/quota", ["GET"], workers.quota),
    ("/api/v1/file", ["GET"], files.get_file),
    ("/api/v1/file", ["POST"], files.put_file),
    ("/api/v1/filelist", ["GET"], files.list_names),
    ("/api/v1/publish", ["GET"], files.list_published),
    ("/api/v1/publish", ["POST"], files.publish),
    ("/filepub", ["GET"], files.get_published),
    ("/api/v1/registry", ["GET"], registries.list_registries),
    ("/api/v1/registry", ["POST"], registries.put_registry),
    ("/api/v1/registry", ["DELETE"], registries.delete_registry),
    ("/api/v1/pfs/files", ["GET"], chunks.get_files),
    ("/api/v1/pfs/files", ["POST", "DELETE"], chunks.change_files),
    ("/api/v1/pfs/chunks", ["GET"], chunks.chunk_meta),
    ("/api/v1/pfs/storage/chunks", ["GET"], chunks.get_chunk),
    ("/api/v1/pfs/storage/chunks", ["POST"], chunks.put_chunk),
]

# Paths of both dialects: with OpenPAI's token they are OpenPAI's.
SHARED: list[tuple[str, list[str], Handler]] = [
    (SHARED_JOBS_PATH, ["GET"], jobs.list_jobs),
    (SHARED_JOBS_PATH, ["POST"], jobs.submit),
    (SHARED_JOBS_PATH + "/{job}", ["DELETE"], jobs.kill),
]


async def not_found(request: Request) -> Response:
    path = request.url.path
    return json_response({"code": 404, "msg": f"PaddleCloud has no {request.method} {path}."}, 404)


class PaddleCloudRouter:
    """Finds the handler of a request of this dialect."""

    def __init__(self, handlers: Mapping[tuple[str, str], Handler], unknown: Handler):
        """``handlers``: wrapped handlers by method and path; ``unknown``: that of all other paths."""
        self._handlers = handlers
        self._unknown = unknown

    async def __call__(self, request: Request) -> Response:
        scope = request.scope
        path: str = scope["path"].rstrip("/")
        handler = self._handlers.get((scope["method"], path))
        if handler is None:
            parent, _, name = path.rpartition("/")
            handler = self._handlers.get((scope["method"], parent + "/{job}")) if name else None
            scope["path_params"] = {"job": name}
        return await (handler or self._unknown)(request)
