"""What becomes of everything when one allocation or one system call fails: `run.py` says how it is run.

`scenarios` collects what is done (`loops`, `connections`, `descriptors`), `memory` and `system_calls` are what fails
meanwhile, `shim` makes it fail, `child` does one scenario with one fault in a process of its own and tells what became
of it, and `judging` says what of that is a defect. `defects` are wrong on purpose."""
