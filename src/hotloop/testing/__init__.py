"""Event loops for tests, with control over time and order.

    hotloop.testing.run(main())                            # sleeping takes no time
    hotloop.testing.run(main(), shuffle=17)                # and independent callbacks run in another order
    hotloop.testing.run_seeds(test, seeds=range(200))      # in two hundred different orders
    async with hotloop.testing.pipe_network(latency=0.05): ...  # and connections are made in memory

Programs that do not ask for this package do not import it.
"""

from hotloop.testing.clock import Clock
from hotloop.testing.connection import Connection
from hotloop.testing.deadlock import DeadlockError
from hotloop.testing.loop import EventLoop, new_event_loop
from hotloop.testing.network import Delivery, PipeNetwork, pipe_network
from hotloop.testing.runner import run, run_seeds

__all__ = [
    "Clock",
    "Connection",
    "DeadlockError",
    "Delivery",
    "EventLoop",
    "PipeNetwork",
    "new_event_loop",
    "pipe_network",
    "run",
    "run_seeds",
]
