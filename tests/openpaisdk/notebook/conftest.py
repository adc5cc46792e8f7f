import os

import pytest

from support.notebook_kernel import JupyterServer, NotebookKernel
from support.python_session import DROPPED, here_fixture, server_fixture, whose_fixture  # noqa: F401


@pytest.fixture(scope="module", name="kernel")
def kernel_fixture(whose, tmp_path_factory):
    """A notebook with the extension, of a user with a running cluster."""
    folder = tmp_path_factory.mktemp("notebook")
    env = {**{k: v for k, v in os.environ.items() if k not in DROPPED}, "HOME": str(whose)}
    kernel = NotebookKernel(str(folder), env)
    kernel.folder = folder
    assert not kernel.run("%load_ext openpaisdk\nimport os\nfrom openpaisdk import Cluster, Job").error
    yield kernel
    kernel.close()


@pytest.fixture(scope="module", name="jupyter")
def jupyter_fixture(whose, tmp_path_factory):
    """A Jupyter server of a user with a running cluster."""
    folder = tmp_path_factory.mktemp("jupyter") / "work"
    folder.mkdir()
    env = {**{k: v for k, v in os.environ.items() if k not in DROPPED}, "HOME": str(whose)}
    server = JupyterServer(folder, env)
    yield server
    server.close()
