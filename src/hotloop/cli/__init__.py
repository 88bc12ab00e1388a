"""The command line: `python -m hotloop`."""
