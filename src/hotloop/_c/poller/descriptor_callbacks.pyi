from typing import final

from hotloop._c.poller.watcher import Watcher

@final
class CallbackWatcher(Watcher): ...

# Cython's: what the compiled modules take from each other.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
