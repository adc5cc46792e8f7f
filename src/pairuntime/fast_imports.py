"""Fast imports for short tasks and commands: imports would take half of the interpreter's start.

A single task on Slurm and the host of an exec session have an interpreter of their own, and of `json` and
`signal` they need only the C parts; the Python parts import `re`, `enum` and more. Of a task, the runtime's
own modules lie compiled in one file, in import order: finding each in an archive takes longer than running
it.
"""

import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types
    from typing import Any


def install() -> "None":
    """Replace `json` and `signal` by their C parts; if those are not as expected, the full modules stay."""
    # The runtime creates no reference cycles: there is nothing to collect.
    gc.disable()
    try:
        import _signal  # type: ignore[import-not-found]

        fast_json = _json()
        read = fast_json.loads(b'{"a": [1, -2.5, "\\u00e4\\n", null, true, {}]}')
        if read != {"a": [1, -2.5, "\u00e4\n", None, True, {}]}:
            return
        if fast_json.dumps({"a": (1, None), "b": "\u00e4"}) != '{"a": [1, null], "b": "\\u00e4"}':
            return
    except Exception:  # noqa: BLE001 - the full modules always work
        return
    sys.modules.setdefault("json", fast_json)
    sys.modules.setdefault("signal", _signal)


def preload(modules: "dict[str, types.CodeType]", archive: "str") -> "None":
    """Register modules from their code, as if imported from the archive; others can still be imported."""
    for name, code in modules.items():
        module = type(sys)(name)
        module.__file__ = "%s/%s" % (archive, code.co_filename)
        parent, _, own = name.rpartition(".")
        module.__package__ = parent
        if module.__file__.endswith("/__init__.py"):
            module.__package__ = name
            module.__path__ = [module.__file__[: -len("/__init__.py")]]
        sys.modules[name] = module
        exec(code, module.__dict__)  # noqa: S102
        if parent:
            setattr(sys.modules[parent], own, module)


class _ScannerSettings:
    """Parser settings the C scanner reads."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    array_hook = None  # Python 3.15
    parse_float = float
    parse_int = int
    parse_constant = float
    memo = {}  # type: dict[str, str]


def _json() -> "types.ModuleType":
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    scan = make_scanner(_ScannerSettings)  # type: ignore[arg-type]

    def loads(text: "str | bytes") -> "Any":
        if isinstance(text, bytes):
            text = text.decode()
        text = text.strip()
        try:
            value, end = scan(text, 0)
        except (StopIteration, ImportError, SystemError):
            # Most errors let the scanner import `json.decoder`, which is not there.
            raise ValueError("not JSON")
        if end != len(text):
            raise ValueError("more than one value")
        return value

    def reject(value: "object") -> "object":
        raise TypeError("not JSON: %r" % (value,))

    encode = make_encoder(None, reject, encode_basestring_ascii, None, ": ", ", ", False, False, True)

    def dumps(value: "object") -> "str":
        return "".join(encode(value, 0))

    module = type(sys)("json")
    module.loads = loads  # type: ignore[attr-defined]
    module.dumps = dumps  # type: ignore[attr-defined]
    module.JSONDecodeError = ValueError  # type: ignore[attr-defined]
    return module
