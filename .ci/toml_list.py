"""toml_list.py FILE [KEY...]: print the strings of a list, or the names of a table, one a line."""

import sys
import tomllib
from pathlib import Path

file, *keys = sys.argv[1:]
value = tomllib.loads(Path(file).read_text(encoding="utf-8"))
for key in keys:
    value = value[key]
print(*value, sep="\n")
