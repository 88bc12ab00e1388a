"""The effects of one failing allocation or system call: `run.py` documents how to run it.

`scenarios` collects the actions (`loops`, `connections`, `descriptors`, `highlevel`); `memory` and `system_calls` list
the faults; `shim` makes them happen; `child` runs one scenario with one fault in a process of its own and reports the
outcome; `judging` decides which outcomes are defects. `defects` are wrong on purpose.
"""
