"""Loggers of training frameworks, which call ``log_metrics``; using one imports its framework.

Public as names of ``openpaisdk.runtime``, from Python 3.7 on. May import ``user_api`` and the frameworks.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any

# Module of the class, the framework's module and what is to be installed.
_CLASSES = {
    "KerasCallback": ("keras_callback", ("keras",), "keras"),
    "LightningLogger": ("lightning_logger", ("lightning", "pytorch_lightning"), "lightning"),
    "TransformersCallback": ("transformers_callback", ("transformers",), "transformers"),
}


def find_class(name: "str") -> "Any":
    """The class of a name of ``openpaisdk.runtime``; an ImportError says which framework is not installed."""
    if name not in _CLASSES:
        raise AttributeError("module 'openpaisdk.runtime' has no attribute %r" % name)
    module, frameworks, package = _CLASSES[name]
    try:
        return getattr(__import__(__name__ + "." + module, fromlist=[name]), name)
    except ImportError as error:
        if error.name not in frameworks:
            raise  # the framework is there, and says what it lacks
        text = "%s needs the package %s, which is not installed: pip install %s." % (name, package, package)
        raise ImportError(text, name=error.name) from None
