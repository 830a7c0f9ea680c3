"""Is each compiled module what its source compiles to? Asked of the environment's own Python.

Run by that Python, once its files are known to be the packages': names of bytecode come on standard
input, and those that are something else go to standard output. Nothing is imported and no
code is run. Standard library only.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys

#: An older format has no references between objects, whose order differs from run to run.
PLAIN = 2


def main(prefix: str) -> None:
    """Compare the bytecode of each name."""
    for line in sys.stdin.buffer:
        name = line.rstrip(b"\n").decode("utf-8", "surrogateescape")
        cached = f"{prefix}/{name}"
        source = importlib.util.source_from_cache(cached)
        with open(cached, "rb") as stream:  # noqa: PTH123 - thousands
            data = stream.read()
        with open(source, "rb") as stream:  # noqa: PTH123
            text = stream.read()
        # Never checked against the source's time: what a release's must be.
        head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
        same = cached == importlib.util.cache_from_source(source)
        same = same and data.startswith(head) and data[8:16] == importlib.util.source_hash(text)
        try:
            made = compile(text, source, "exec", dont_inherit=True, optimize=0)
            same = same and marshal.dumps(made, PLAIN) == marshal.dumps(
                marshal.loads(data[16:]), PLAIN
            )
        except (SyntaxError, ValueError, EOFError, TypeError):
            same = False
        if not same:
            print(name)


if __name__ == "__main__":
    main(sys.argv[1])
