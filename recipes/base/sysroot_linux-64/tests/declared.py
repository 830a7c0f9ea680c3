"""usage: declared.py FLOOR: the headers declare no function that is younger than the floor."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, "scripts")

from headers import younger
from symbols import numbers, parse

#: The headers of the C library, but those that need others before them, or are for one program.
LEFT_OUT = {"regexp.h", "thread_db.h", "proc_service.h", "re_comp.h", "sys/elf.h", "sys/vm86.h"}

floor = sys.argv[1]
include = Path(os.environ["CONDA_PREFIX"], "x86_64-conda-linux-gnu/sysroot/usr/include")
with tarfile.open("glibc-2.31.tar.xz") as archive:
    symbols = [
        parse(line.decode())
        for member in archive
        if member.name.startswith("symbols/")
        for line in archive.extractfile(member).read().splitlines()
    ]
paths = [*include.glob("*.h"), *include.glob("sys/*.h")]
names = sorted({str(path.relative_to(include)) for path in paths} - LEFT_OUT)
lines = [f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n" for name in names]
Path("all.c").write_text("#define _GNU_SOURCE\n" + "".join(lines))
compiler = Path(os.environ["CONDA_PREFIX"], "bin/x86_64-conda-linux-gnu-gcc")
command = [compiler, "-w", "-fsyntax-only", "-aux-info", "declared", "all.c"]
subprocess.run(command, check=True)
declared = set(re.findall(r"(\w+) \([^()]*(?:\([^()]*\)[^()]*)*\);", Path("declared").read_text()))

assert {"printf", "pthread_create", "stat", "posix_spawn", "dlopen", "pow"} <= declared
assert not declared & younger(symbols, floor), declared & younger(symbols, floor)
assert numbers(floor) >= (2, 31) or younger(symbols, floor) & {"gettid", "pthread_cond_clockwait"}
