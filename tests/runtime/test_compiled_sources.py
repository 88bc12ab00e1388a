"""Constructs that the extension's compiler gets wrong, and that the sources therefore must not contain."""

import itertools
import re
from pathlib import Path

SOURCES = sorted((Path(__file__).parents[2] / "ext").rglob("*.p[yx][xd]"))
COMPREHENSION = re.compile(r"\[(?P<element>[^\[\]]+|.+?) for (?P<name>\w+) in (?P<iterable>.+)\]")
EXCEPT = re.compile(r"(?P<indent> *)except\b(?P<classes>.*?):(?P<rest>.*)")
RETURN = re.compile(r"(^|: )return\b(?P<value>.*)")
CONSTANT = re.compile(r"None|True|False|NULL|-?\d+|")


def test_no_list_comprehension_makes_its_elements():
    """If the list cannot be allocated, the C code of Cython 3.3.1 releases such an element twice."""
    makes_them = [
        f"{path.name}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for found in COMPREHENSION.finditer(line)
        if found["element"] != found["name"] or found["iterable"].startswith("range(")
    ]
    assert not makes_them


def body_of(clause, first, lines):
    """The numbered statements of an except clause whose first line has the number `first`."""
    rest = enumerate(lines[first:], first + 1)
    inside = itertools.takewhile(lambda numbered: re.match(clause["indent"] + r" |\s*$", numbered[1]), rest)
    without_comments = ((number, text.partition("#")[0].strip()) for number, text in [(first, clause["rest"]), *inside])
    return [(number, text) for number, text in without_comments if text]


def unsafe_returns(lines):
    """The numbers of the lines with a `return` out of an except clause that has taken its exception."""
    numbers = set()
    for first, line in enumerate(lines, 1):
        if (clause := EXCEPT.match(line)) is not None:
            body = body_of(clause, first, lines)
            is_all = len(body) == 1 and " as " not in clause["classes"]
            for number, text in body:
                found = RETURN.search(text)
                if found is not None and not (is_all and CONSTANT.fullmatch(found["value"].strip())):
                    numbers.add(number)
    return sorted(numbers)


def test_no_except_clause_is_left_by_return():
    """An exception raised while memory has run out may have no traceback. For a `return` the C code of Cython 3.3.1
    releases the traceback that the clause has taken without checking for NULL; for the end of the clause, for
    `continue`, `break` and `raise` it checks. A clause that only returns a constant takes none."""
    assert not [f"{path.name}:{number}" for path in SOURCES for number in unsafe_returns(path.read_text().splitlines())]


def test_such_a_return_is_found_wherever_it_stands():
    source = """
        try:
            a()
        except A:
            return False
        except B:  # Nothing is taken
            # for a constant alone.
            return  # None
        except C as error:
            return 0
        except D:
            return value
        except E:

            if b():
                for c in d: return None
            e()
        except (F, G): return f()
        except H: pass
        else:
            return g()
        return h()
    """
    lines = source.splitlines()
    assert [lines[number - 1].strip() for number in unsafe_returns(lines)] == [
        "return 0",
        "return value",
        "for c in d: return None",
        "except (F, G): return f()",
    ]
