from types import FrameType

def current_frames() -> dict[int, FrameType]: ...

__test__: dict[str, str]
