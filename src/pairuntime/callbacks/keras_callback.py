"""``openpaisdk.runtime.KerasCallback``."""

from keras import backend
from keras.callbacks import Callback

from pairuntime.callbacks.metric_groups import grouped, log_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any


class KerasCallback(Callback):
    """Logs metrics of each epoch: ``model.fit(..., callbacks=[KerasCallback()])``.

    ``val_loss`` is ``val/loss``, ``loss`` is ``train/loss``. The step is the epoch. With ``every_batches``
    metrics of training are also logged after each so many batches, and steps are batches.
    """

    def __init__(self, every_batches: "int" = 0):
        super().__init__()
        self.every_batches = every_batches
        # Keras then waits for no batch because of this callback.
        self.async_safe = not every_batches
        self._batches = 0

    def on_train_batch_end(self, batch: "int", logs: "dict[str, Any] | None" = None) -> "None":
        if self.every_batches:
            self._batches += 1
            if self._batches % self.every_batches == 0:
                self._log(self._batches, logs)

    def on_epoch_end(self, epoch: "int", logs: "dict[str, Any] | None" = None) -> "None":
        self._log(self._batches if self.every_batches else epoch, logs)

    def _log(self, step: "int", logs: "dict[str, Any] | None") -> "None":
        if _is_first_process():
            log_numbers(step, {grouped(name, ("val",)): value for name, value in (logs or {}).items()})


def _is_first_process() -> "bool":
    """Keras has no ranks of its own; two of its backends have."""
    if backend.backend() == "torch":
        from torch import distributed

        return (
            not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0
        )
    if backend.backend() == "jax":
        import jax

        return bool(jax.process_index() == 0)
    return True
