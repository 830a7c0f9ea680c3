"""Is each compiled module what its source compiles to? Asked of the environment's own Python.

Run by that Python, once its files are known to be the packages': names of bytecode come on standard
input, and those that are something else go to standard output. Nothing is imported and no
code is run. Standard library only.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import re
import sys

#: An older format has no references between objects, whose order differs from run to run.
PLAIN = 2


def main(prefix: str) -> None:
    """Compare the bytecode of each name."""
    for line in sys.stdin.buffer:
        name = line.rstrip(b"\n").decode("utf-8", "surrogateescape")
        cached = f"{prefix}/{name}"
        folder, _, file = cached.rpartition("/__pycache__/")
        source = f"{folder}/{source_name(file)}"
        with open(cached, "rb") as stream:  # noqa: PTH123 - thousands
            data = stream.read()
        with open(source, "rb") as stream:  # noqa: PTH123
            text = stream.read()
        same = cached == importlib.util.cache_from_source(source)
        same = same and data[:16] in _heads(text, int(os.stat(source).st_mtime))  # noqa: PTH116
        try:
            made = compile(text, source, "exec", dont_inherit=True, optimize=0)
            same = same and marshal.dumps(made, PLAIN) == marshal.dumps(
                marshal.loads(data[16:]), PLAIN
            )
        except (SyntaxError, ValueError, EOFError, TypeError):
            same = False
        if not same:
            print(name)


def source_name(cached: str) -> str:
    """`a.b.py` for `a.b.cpython-311.pyc`; importlib's own function refuses names with dots."""
    return re.sub(r"^(.+?)\.[^.]+?(\.opt-\w+)?\.pyc$", r"\1.py", cached)


def _heads(text: bytes, time: int) -> tuple[bytes, bytes]:
    """The two headers that bytecode of this source may have: one that Python checks by time and
    size, and one that holds the source's hash and is not checked.

    Source: PEP 552.
    """
    checked = [number & 0xFFFFFFFF for number in (0, time, len(text))]
    timed = b"".join(number.to_bytes(4, "little") for number in checked)
    unchecked = (1).to_bytes(4, "little") + importlib.util.source_hash(text)
    return importlib.util.MAGIC_NUMBER + timed, importlib.util.MAGIC_NUMBER + unchecked


if __name__ == "__main__":
    main(sys.argv[1])
