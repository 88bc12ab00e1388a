# The compiled objects have the types of asyncio's own, from which they derive or whose functions they call.
from asyncio import *  # noqa: F403

# Names that are not in asyncio.__all__.
from asyncio import TaskGroup as TaskGroup
from asyncio import base_events as base_events
from asyncio import constants as constants
from asyncio import coroutines as coroutines
from asyncio import events as events
from asyncio import exceptions as exceptions
from asyncio import futures as futures
from asyncio import locks as locks
from asyncio import protocols as protocols
from asyncio import queues as queues
from asyncio import runners as runners
from asyncio import streams as streams
from asyncio import subprocess as subprocess
from asyncio import taskgroups as taskgroups
from asyncio import tasks as tasks
from asyncio import threads as threads
from asyncio import timeouts as timeouts
from asyncio import transports as transports
