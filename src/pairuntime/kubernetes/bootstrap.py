"""Bootstrap in a pod: downloads the launch bundle, then runs what is in it.

Travels as text in the Secret of the pod: the image needs Python, and nothing of this project.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

if "download_bundle" not in globals():  # in the Secret the text of that module precedes this one
    from pairuntime.reports.bundle_download import LaunchRejected, download_bundle

# Last member of a bundle.
MARKER = "complete"


def main(config: "dict[str, Any]") -> "None":
    """``config``: the server's URL and certificates, the ticket, and the folder of the bundle."""
    root = config["root"]
    try:
        is_complete = download_bundle(config, os.environ["PAI_POD_ATTEMPT"] + "/bundle", root, MARKER)
    except LaunchRejected:
        sys.exit(3)
    if not is_complete:
        sys.exit("The server did not respond at %s." % config["url"])
    sys.path.insert(0, os.path.join(root, config["archive"]))
    from pairuntime.kubernetes import pod_runtime

    sys.exit(pod_runtime.run(config, root))
