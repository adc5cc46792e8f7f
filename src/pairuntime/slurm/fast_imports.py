"""Makes a short task's interpreter load less: half of the time to start would go into modules.

A task alone in its allocation has an interpreter of its own, and of `json` and `signal` it needs what their C
halves give; the other halves bring `re`, `enum` and more. Our own modules lie ready in one file, in the order
in which they are needed: to find each in an archive takes longer than to run it.
"""

import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types
    from typing import Any


def install() -> "None":
    """Before anything of ours is loaded. Where the halves are not as expected, the whole modules serve."""
    # Nothing of ours goes round in circles: there is nothing to collect.
    gc.disable()
    try:
        import _signal  # type: ignore[import-not-found]

        light = _json()
        read = light.loads(b'{"a": [1, -2.5, "\\u00e4\\n", null, true, {}]}')
        if read != {"a": [1, -2.5, "\u00e4\n", None, True, {}]}:
            return
        if light.dumps({"a": (1, None), "b": "\u00e4"}) != '{"a": [1, null], "b": "\\u00e4"}':
            return
    except Exception:  # noqa: BLE001 - whatever it is, the usual way works
        return
    sys.modules.setdefault("json", light)
    sys.modules.setdefault("signal", _signal)


def preload(ready: "dict[str, types.CodeType]", archive: "str") -> "None":
    """Modules of this code, as if they had been loaded from the archive; whatever else is, still can be."""
    for name, code in ready.items():
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


class _Reading:
    """What the scanner wants to know."""

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

    scan = make_scanner(_Reading)  # type: ignore[arg-type]

    def loads(text: "str | bytes") -> "Any":
        if isinstance(text, bytes):
            text = text.decode()
        try:
            return scan(text.strip(), 0)[0]
        except StopIteration:
            raise ValueError("no JSON")

    def refuse(value: "object") -> "object":
        raise TypeError("no JSON: %r" % (value,))

    encode = make_encoder(None, refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True)

    def dumps(value: "object") -> "str":
        return "".join(encode(value, 0))

    light = type(sys)("json")
    light.loads = loads  # type: ignore[attr-defined]
    light.dumps = dumps  # type: ignore[attr-defined]
    light.JSONDecodeError = ValueError  # type: ignore[attr-defined]
    return light
