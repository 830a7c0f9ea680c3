"""Make shared libraries prefer their own functions: what `ld -Bsymbolic` does, afterwards.

A library that exports functions of a library inside it, as of LLVM, takes those of another version
where one was loaded before it for all to see. DT_SYMBOLIC in its dynamic section keeps it to its
own (System V ABI, chapter 5). The tag takes the place of DT_RELACOUNT, which is a hint only, so
nothing in the file moves. With the standard library only, for any Python.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

#: Of the ELF format: the kind of a segment, and tags of the dynamic section.
PT_DYNAMIC, DT_SYMBOLIC, DT_RELACOUNT = 2, 16, 0x6FFFFFF9


def main() -> None:
    """Edit the files that are named."""
    for name in sys.argv[1:]:
        path = Path(name)
        content = bytearray(path.read_bytes())
        make_symbolic(content, name)
        path.write_bytes(content)


def make_symbolic(content: bytearray, name: str) -> None:
    """Set the tag, unless the library has it already."""
    if content[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian: all our platforms
        sys.exit(f"error: {name}: not a library of 64 bits, little-endian")
    start, size = dynamic_section(content, name)
    entries = range(start, start + size, 16)
    tags = [struct.unpack_from("<q", content, at)[0] for at in entries]
    if DT_SYMBOLIC in tags:
        return
    if DT_RELACOUNT not in tags:
        sys.exit(f"error: {name}: its dynamic section has no DT_RELACOUNT to replace")
    struct.pack_into("<qQ", content, start + 16 * tags.index(DT_RELACOUNT), DT_SYMBOLIC, 0)


def dynamic_section(content: bytearray, name: str) -> tuple[int, int]:
    """Offset and size in the file."""
    (table,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    for number in range(count):
        at = table + size * number
        (kind,) = struct.unpack_from("<I", content, at)
        if kind == PT_DYNAMIC:
            offset, length = struct.unpack_from("<Q16xQ", content, at + 8)
            return offset, length
    sys.exit(f"error: {name}: no dynamic section")


if __name__ == "__main__":
    main()
