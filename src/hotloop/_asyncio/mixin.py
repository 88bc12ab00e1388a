"""The base class of hotloop's mixins for event loop classes.

A mixin's methods call those of the classes behind it in the method resolution order, asyncio's private ones included.
The type checker knows neither those classes nor these methods, so for it a mixin derives from Any.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Behind = Any
else:
    Behind = object
