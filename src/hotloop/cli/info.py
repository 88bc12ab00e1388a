"""`python -m hotloop info`: which implementation is in use and why, whose tasks, how TLS is done, and what of asyncio
is compiled. Intended for bug reports."""

import json
import platform
import sys

import hotloop
from hotloop import _impl


def collect() -> dict[str, str]:
    selector = hotloop.DefaultSelector
    return {
        "hotloop": hotloop.__version__,
        "implementation": hotloop.implementation,
        "reason": _impl.reason,
        "selector": f"{selector.__module__}.{selector.__qualname__}",
        "backend": getattr(sys.modules[selector.__module__], "BACKEND", "")
        or selector.__name__.removesuffix("Selector").lower(),
        "tasks": "asyncio's" if _impl.uses_asyncio_tasks else "hotloop's",
        "tls": _tls(),
        **_compiled_asyncio(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "executable": sys.executable,
        "compiler": platform.python_compiler(),
        "platform": platform.platform(),
    }


def _tls() -> str:
    try:
        import ssl
    except ImportError:
        return "not available: this Python has no ssl module"
    if hotloop.implementation != "c":
        return f"{ssl.OPENSSL_VERSION}, by asyncio"
    from hotloop._c.tls.direct_engine import why_openssl_is_not_called

    reason = why_openssl_is_not_called()
    return ssl.OPENSSL_VERSION + (", called directly" if reason is None else f", by the ssl module: {reason}")


def _compiled_asyncio() -> dict[str, str]:
    """hotloop.compiled_asyncio() in words."""
    state = hotloop.compiled_asyncio()
    if not state.available:
        return {"compiled_asyncio": f"not available: {state.reason}"}
    facts = {
        "compiled_asyncio": "in asyncio's place" if state.installed else "available, in hotloop.asyncio",
        "compiled_names": " ".join(state.names),
    }
    if state.installed and state.imported_earlier:
        facts["imported_earlier"] = " ".join(state.imported_earlier)
    return facts


def show(*, as_json: bool) -> None:
    facts = collect()
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:{width}}  {value}")
