# Only other compiled modules can use this module.

# Cython's: what the compiled modules take from each other.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
