"""``openpaisdk.runtime.LightningLogger``."""

import sys
from importlib.util import find_spec

# One framework under two names, of which a program imports one.
if "pytorch_lightning" in sys.modules or find_spec("lightning") is None:
    from pytorch_lightning.loggers import Logger
    from pytorch_lightning.utilities import rank_zero_only
else:
    from lightning.pytorch.loggers import Logger
    from lightning.pytorch.utilities import rank_zero_only

from pairuntime.callbacks.metric_groups import log_numbers
from pairuntime.user_api import where

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any


class LightningLogger(Logger):
    """Logs what a module logs: ``Trainer(logger=LightningLogger())``, also in a list with others.

    Names and steps are those of Lightning. Hyperparameters are not kept: `pai runs` shows those of a job.
    """

    @property
    def name(self) -> "str":
        """Folder of the checkpoints, below the trainer's ``default_root_dir``: the job."""
        return where().job or "local"

    @property
    def version(self) -> "str":
        """Folder below it: the task."""
        here = where()
        return "%s-%d" % (here.role or "main", here.index)

    @rank_zero_only
    def log_metrics(self, metrics: "dict[str, Any]", step: "int | None" = None) -> "None":
        log_numbers(step, metrics)

    def log_hyperparams(self, *params: "Any", **others: "Any") -> "None":
        pass
