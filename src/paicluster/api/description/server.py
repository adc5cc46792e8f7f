"""What the server says of itself, and the sources jobs bring along."""

from __future__ import annotations

from typing import Any

from paicluster.api.description.operation import Body, Operation, Query, Said, Text

_TAG = "server"

OPERATIONS: dict[str, Operation] = {
    "own.health": Operation("Whether work moves", _TAG, {200: Text(), 503: Text()}, token=False),
    "own.metrics": Operation("How it is doing, for Prometheus", _TAG, {200: Text()}),
    "own.description": Operation("This description", _TAG, {200: dict[str, Any]}, token=False),
    "v2.sources.has_sources": Operation("Whether these sources are here", "sources", {200: None}, (400,)),
    "v2.sources.put_sources": Operation(
        "Store sources: a tar, by its SHA-256",
        "sources",
        {200: Said, 201: Said},
        (404, 507),
        query=(Query("base", about="With a patch as the body: the sources it is for."),),
        body=Body(
            {
                kind: Text(kind, binary=True)
                for kind in ("application/octet-stream", "application/vnd.openpai.sources-patch")
            }
        ),
    ),
    "v2.pages.job_detail": Operation(
        "Where a person can see a job",
        _TAG,
        {200: Text("text/html"), 400: Text("text/html")},
        query=(Query("username"), Query("jobName")),
        token=False,
    ),
}
