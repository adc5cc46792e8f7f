"""What the loggers of all frameworks share: values that are no numbers, and groups of names."""

from pairuntime.user_api import log_metrics, number_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any, Mapping


def log_numbers(step: "Any", metrics: "Mapping[str, Any] | None") -> "None":
    """Log those metrics that are numbers, or tensors or arrays with one item. Frameworks also pass others."""
    numbers = {name: number_of(value) for name, value in (metrics or {}).items()}
    numbers = {name: number for name, number in numbers.items() if number is not None}
    if numbers:
        log_metrics(step, numbers)


def grouped(name: "str", groups: "tuple[str, ...]") -> "str":
    """The name with its prefix as a group: ``eval_loss`` is ``eval/loss``, and ``loss`` ``train/loss``."""
    for group in groups:
        if name.startswith(group + "_"):
            return "%s/%s" % (group, name[len(group) + 1 :])
    return "train/" + name
