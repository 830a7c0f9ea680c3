"""What a build may call of the machine: the programs that every Linux system has.

All other tools are packages, so that a package is made of the same tools everywhere. A build's PATH
has a folder of links to these programs in the place of the machine's folders. Folders that a user
names by DDLCE_BUILD_PATH come after it. A package's tests may call a few more, with which they set
up a machine: a compiler, `make` or `pkg-config` there would hide that the package needs one.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ddlce.settings import SYSTEM_PATH

#: A shell and what POSIX gives it, GNU's core utilities, and tar with gzip.
PROGRAMS = (
    *("sh", "bash", "awk", "gawk", "mawk", "cmp", "diff", "diff3", "egrep", "fgrep", "find"),
    *("getconf", "grep", "gunzip", "gzip", "hostname", "sed", "tar", "xargs", "zcat", "["),
    *("arch", "b2sum", "base32", "base64", "basename", "cat", "chgrp", "chmod", "chown", "cksum"),
    *("comm", "cp", "csplit", "cut", "date", "dd", "df", "dir", "dirname", "du", "echo", "env"),
    *("expand", "expr", "factor", "false", "fmt", "fold", "groups", "head", "id", "install"),
    *("join", "link", "ln", "logname", "ls", "md5sum", "mkdir", "mkfifo", "mknod", "mktemp"),
    *("mv", "nice", "nl", "nohup", "nproc", "numfmt", "od", "paste", "pathchk", "pr", "printenv"),
    *("printf", "ptx", "pwd", "readlink", "realpath", "rm", "rmdir", "sha1sum", "sha224sum"),
    *("sha256sum", "sha384sum", "sha512sum", "shred", "shuf", "sleep", "sort", "split", "stat"),
    *("stdbuf", "stty", "sum", "sync", "tac", "tail", "tee", "test", "timeout", "touch", "tr"),
    *("true", "truncate", "tsort", "tty", "uname", "unexpand", "uniq", "unlink", "users", "wc"),
    *("who", "whoami", "yes"),
)

#: What tests may call beside them: of util-linux, procps and glibc, and what closes a room.
FOR_TESTS = (
    *("bwrap", "flock", "ip", "kill", "ldconfig", "ldd", "mount", "nsenter", "ps", "script"),
    *("setpriv", "ss", "ssh", "ssh-keygen", "umount", "unshare"),
)


def machine_programs(
    folder: Path, path: str, loaders: dict[str, str], more: Sequence[str] = ()
) -> str:
    """Fill an empty or missing folder with what a build may call of the machine; returns its PATH.

    `python3` there is the one that runs us.

    Args:
        path: the folders of the machine's programs, or those that the user names instead.
        loaders: variables of the dynamic loader without which our own Python may not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*PROGRAMS, *more):
        if program := shutil.which(name, path=path):
            (folder / name).symlink_to(program)
    python, own = folder / "python3", Path(sys.executable).resolve()
    if loaders:
        words = ["env", *(f"{name}={value}" for name, value in loaders.items()), str(own)]
        python.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        python.chmod(0o755)
    else:
        python.symlink_to(own)
    return str(folder) if path == SYSTEM_PATH else f"{folder}{os.pathsep}{path}"
