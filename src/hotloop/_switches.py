"""What a user may write to switch something on or off by an environment variable, in upper or lower case."""

from typing import Final

OFF: Final = ("", "0", "false", "no", "off")
ON: Final = ("1", "true", "yes", "on")
