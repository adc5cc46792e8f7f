"""``openpaisdk.runtime.TransformersCallback``."""

from transformers import TrainerCallback

from pairuntime.callbacks.metric_groups import grouped, log_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any


class TransformersCallback(TrainerCallback):
    """Logs what ``Trainer`` logs: ``Trainer(..., callbacks=[TransformersCallback()])``.

    ``eval_loss`` is ``eval/loss``, ``test_loss`` is ``test/loss``, and all other names are in ``train/``, as
    in the Trainer's own reports to TensorBoard. The step is the Trainer's global step.
    """

    def on_log(
        self, args: "Any", state: "Any", control: "Any", logs: "dict[str, Any] | None" = None, **others: "Any"
    ) -> "None":
        if state.is_world_process_zero:
            metrics = {grouped(name, ("eval", "test")): value for name, value in (logs or {}).items()}
            log_numbers(state.global_step, metrics)
