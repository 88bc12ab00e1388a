"""check_junit.py REPORT IMPLEMENTATION...: fail unless tests passed on every implementation named.

pytest is content when a parameter has lost its values; a run that never touched the extension must not pass as one. The
implementation of a test is what its fixture says in the report, and not a word in the test's name, which may be any
parameter.
"""

import collections
import sys
import xml.etree.ElementTree as ElementTree


def main(report: str, *wanted: str) -> int:
    passed: collections.Counter[str] = collections.Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        if len(case.findall("*[@message]")) == 0:
            passed.update(each.get("value") for each in case.iterfind("properties/property[@name='implementation']"))
    print("passed by implementation: " + ", ".join(f"{name} {passed[name]}" for name in wanted))
    return int(any(passed[name] == 0 for name in wanted))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
