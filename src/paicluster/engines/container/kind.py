"""Registration of the container engine."""

from __future__ import annotations

from paicluster.engines.engine_kind import DetectedConfig, EngineContext, EngineKind
from paicluster.engines.process.kind import LOCAL_OPTIONS, LOCAL_SECTION
from paicluster.engines.router import ReadableEngine
from paicluster.engines.setting_types import Number
from paiprotocol.jobs.schema_nodes import Choice, Int, Node, Nullable

_OPTIONS: dict[str, Node] = {
    **LOCAL_OPTIONS,
    "program": Choice("auto", "podman", "docker", doc="What runs the images."),
    "network": Choice("host", "own", doc="The host's, or one of its own with the job's ports published."),
    "images": Choice("refuse", "ignore", doc="What becomes of a job whose image cannot be run here."),
    "keep-images-mb": Nullable(Int("Of the images that were pulled for jobs.", minimum=0)),
    "keep-images-days": Nullable(Number("Since a job last used them.")),
}

_SECTION = f"""\
# Where tasks run: on this machine, each in a container of its job's image (podman or docker).
# Tasks without an image are processes. With `type: process` all are, and images are not used.
engine:
  type: container
  images: ignore                        # a job whose image cannot run here runs without; refuse: it fails
{LOCAL_SECTION}"""


def _build(context: EngineContext) -> ReadableEngine:
    from paicluster.engines.container.engine import ContainerEngine
    from paicluster.engines.process.engine import DEFAULT_MAX_PROCESSES

    options = context.options
    program = options.get("program", "auto")
    return ContainerEngine(
        context.home,
        context.node,
        programs=("podman", "docker") if program == "auto" else (program,),
        refuse_without=options.get("images", "refuse") == "refuse",
        host_network=options.get("network", "host") == "host",
        keep_images_mb=options.get("keep-images-mb", 100_000),
        keep_images_days=options.get("keep-images-days", 30.0),
        grace_s=context.grace_s,
        enforce_limits=context.enforce_limits,
        max_processes=options.get("processes", DEFAULT_MAX_PROCESSES),
        accounts=context.accounts,
        ca_certificates=context.ca_certificates,
    )


def _detect() -> DetectedConfig | None:
    from paicluster.engines.container import client_probe

    if not client_probe.may_be_available():
        return None
    return DetectedConfig(_SECTION, message="Found podman or docker: jobs will run in the image they name.")


CONTAINER = EngineKind("container", _OPTIONS, _build, detect=_detect)
