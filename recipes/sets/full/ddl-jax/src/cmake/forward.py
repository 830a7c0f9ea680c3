"""Writes the functions and constants of the MPItrampoline ABI that are those of the MPI below.

Usage: forward.py MPI_HEADER_FOLDER CONSTANTS OUTPUT

MPItrampoline's ABI has every handle in a pointer's width and a status of its own; `csrc/abi.h` has
the conversions. The functions are weak: one of the same name in `csrc` takes the place of its own.
A function that takes a callback, whose handles would have to be converted on its way back, or an
array of handles whose length no argument says, is refused when it is called.
"""

import re
import sys
from pathlib import Path

HANDLES = [
    "Comm",
    "Datatype",
    "Errhandler",
    "File",
    "Group",
    "Info",
    "Message",
    "Op",
    "Request",
    "Win",
]
HANDLE = re.compile(rf"^(?:const )?MPI_({'|'.join(HANDLES)})$")
#: Types that are the same on both sides.
PLAIN = {"int", "double", "char", "void", "MPI_Aint", "MPI_Count", "MPI_Offset", "MPI_Fint"}
PROTOTYPE = re.compile(r"^(int|double|MPI_\w+) (MPI(?:_|X_Query_)\w*[a-z]\w*)\(([^;()]*)\)", re.M)
HEAD = """// Written by cmake/forward.py.
#include "abi.h"

namespace abi = ddl_jax::abi;
#define DDL_JAX_WEAK extern "C" __attribute__((weak, visibility("default")))
"""


class Argument:
    """One argument of a prototype: what the ABI has, and how MPI gets it."""

    def __init__(self, text: str, others: str) -> None:
        text = " ".join(text.replace("*", " * ").split())
        found = re.fullmatch(r"(.*?)((?: \*)*(?: const)?(?: \*)?) ?(\w+)((?:\[\d*\])*)", text)
        assert found, text
        self.base, stars, self.name, brackets = (group.strip() for group in found.groups())
        depth = stars.count("*") + brackets.count("[")
        self.is_known = True
        handle = HANDLE.match(self.base)
        length = next((n for n in ("count", "incount") if re.search(rf"\bint {n}\b", others)), "")
        self.declared = f"{self.base} {stars}{self.name}{brackets}"
        self.given = self.name
        if handle and depth == 0:
            self.declared = f"abi::Handle {self.name}"
            self.given = f"abi::value<MPI_{handle[1]}>({self.name})"
        elif handle and depth == 1 and brackets:
            const = "const " if self.base.startswith("const") else ""
            self.declared = f"{const}abi::Handle* {self.name}"
            self.given = f"abi::Handles<MPI_{handle[1]}>({self.name}, {length})"
            self.is_known = bool(length)
        elif handle and depth == 1:
            self.declared = f"abi::Handle* {self.name}"
            self.given = f"abi::Out<MPI_{handle[1]}>({self.name})"
        elif self.base in ("MPI_Status", "const MPI_Status") and depth == 1:
            is_array = self.name.startswith("array_of")
            self.declared = f"abi::Status* {self.name}"
            self.given = f"abi::Statuses({self.name}, {length if is_array else 1})"
            self.is_known = not is_array or bool(length)
        else:
            self.is_known = self.base.removeprefix("const ") in PLAIN


def function(result: str, name: str, text: str) -> str:
    """The definition of one function of the ABI."""
    pieces = [] if text.strip() in ("", "void") else re.split(r",(?![^(]*\))", text)
    arguments = [Argument(piece, text) for piece in pieces]
    ours = name.replace("_", "ABI_", 1)
    handle = HANDLE.match(result)
    declared = ", ".join(a.declared for a in arguments)
    if not all(a.is_known for a in arguments):
        return f'DDL_JAX_WEAK int {ours}() {{ return abi::refuse("{name}"); }}\n'
    call = f"{name}({', '.join(a.given for a in arguments)})"
    if handle:
        result, call = "abi::Handle", f"abi::handle({call})"
    return f"DDL_JAX_WEAK {result} {ours}({declared}) {{ return {call}; }}\n"


def main() -> None:
    """Reads mpi_proto.h, or mpi.h where all is in it, and writes the file."""
    folder, constants, output = map(Path, sys.argv[1:])
    header = next(f for f in (folder / "mpi_proto.h", folder / "mpi.h") if f.exists())
    lines = [HEAD]
    for result, name, arguments in PROTOTYPE.findall(header.read_text()):
        is_known = result in PLAIN or HANDLE.match(result)
        is_later = name.startswith(("MPI_T_", "MPI_Session")) or name.endswith("_c")
        if is_known and not is_later and "..." not in arguments and "f08" not in name:
            lines.append(function(result, name, arguments))
    words = [line for line in constants.read_text().splitlines() if not line.startswith("#")]
    for name in " ".join(words).split():
        lines.append(
            f'extern "C" __attribute__((visibility("default"))) '
            f"const abi::Constant MPIABI_{name} = abi::constant(MPI_{name});\n"
        )
    output.write_text("".join(lines))


if __name__ == "__main__":
    main()
