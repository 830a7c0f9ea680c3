"""Every module that needs a library of the base, doing what it is for, at this prefix.

`test_python.py VERSION`: of python 3.11 and of 3.13.
"""

import bz2
import ctypes
import curses
import curses.panel
import hashlib
import importlib.util
import lzma
import multiprocessing
import os
import platform
import readline
import sqlite3
import ssl
import subprocess
import sys
import sysconfig
import tempfile
import uuid
import venv
import zlib
from pathlib import Path
from xml.etree import ElementTree

VERSION = sys.argv[1]
MINOR = VERSION.rpartition(".")[0]
TAG = MINOR.replace(".", "")
PREFIX = Path(os.environ["PREFIX"]).resolve()
LIBRARIES = "ssl crypto sqlite3 ffi lzma bz2 z readline ncursesw tinfow panelw uuid expat".split()
LEFT_OUT = "tkinter idlelib lib2to3 test nis _crypt _gdbm _dbm".split()


def check_prefix() -> None:
    """It is where it was installed, not where it was built for."""
    assert Path(sys.prefix).resolve() == PREFIX, sys.prefix
    assert platform.python_version() == VERSION
    assert sys.implementation.cache_tag == f"cpython-{TAG}"
    for name in LEFT_OUT:
        assert importlib.util.find_spec(name) is None, name


def check_libraries() -> None:
    """Round trips and known answers, all with the prefix's own copies of the libraries."""
    data = bytes(range(256)) * 64
    for module in (bz2, lzma, zlib):
        assert module.decompress(module.compress(data)) == data, module
    assert hashlib.sha256(b"abc").hexdigest().startswith("ba7816bf8f01cfea")
    assert {"sha3_512", "blake2b", "md5"} <= hashlib.algorithms_available
    row = sqlite3.connect(":memory:").execute("select json('[1]'), sqrt(4)").fetchone()
    assert row == ("[1]", 2.0), row
    assert uuid.uuid1().version == 1 and uuid._generate_time_safe, "no module _uuid"
    pointer = ctypes.POINTER(ctypes.c_int)
    compare = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)
    numbers = (ctypes.c_int * 3)(3, 1, 2)
    ctypes.CDLL(None).qsort(numbers, 3, 4, compare(lambda a, b: a[0] - b[0]))
    assert list(numbers) == [1, 2, 3]
    readline.add_history("line")
    assert readline.get_history_item(1) == "line"
    curses.setupterm("xterm-256color", 1)
    assert curses.tigetnum("colors") == 256 and curses.panel.version
    assert ElementTree.fromstring("<a><b/><b/></a>").findall("b")[1].tag == "b"

    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    for name in [*LIBRARIES, f"python{MINOR}"]:
        found = [path for path in mapped if f"/lib{name}.so" in path]
        assert found and all(Path(path).is_relative_to(PREFIX) for path in found), (name, found)


def check_certificates() -> None:
    """TLS finds the prefix's root certificates without being told."""
    assert ssl.OPENSSL_VERSION.startswith("OpenSSL 3.0."), ssl.OPENSSL_VERSION
    os.environ.pop("SSL_CERT_FILE", None)
    default = ssl.get_default_verify_paths().openssl_cafile
    assert Path(default).resolve() == PREFIX / "ssl/cert.pem", default
    stats = ssl.create_default_context().cert_store_stats()
    assert stats["x509_ca"] > 100, stats


def check_processes() -> None:
    """Semaphores and new processes work."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]


def check_environments() -> None:
    """`python -m venv` makes an environment with a pip of its own, with no network."""
    with tempfile.TemporaryDirectory() as folder:
        mine = Path(folder) / "mine"
        venv.create(mine, with_pip=True, symlinks=True)
        asked = [mine / "bin/python", "-I", "-m", "pip", "--version"]
        said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        assert str(mine.resolve()) in said, said


def check_sysconfig() -> None:
    """What extensions are compiled with: this prefix, the user's gcc, no folder of the build."""
    variables = sysconfig.get_config_vars()
    assert variables["CC"].split()[0] == "gcc", variables["CC"]
    assert Path(variables["LIBDIR"]).resolve() == PREFIX / "lib", variables["LIBDIR"]
    assert variables["EXT_SUFFIX"].startswith(f".cpython-{TAG}-")
    for trace in ("prefix-map", "placehold", "rattler-build", "build_env"):
        assert trace not in repr(variables), trace


def check_byte_code() -> None:
    """Byte code for every module but those that hold the prefix; never checked, prefix-free."""
    library = Path(os.__file__).parent
    for source in library.rglob("*.py"):
        top = source.relative_to(library).parts[0]
        if top == "site-packages" or top.startswith(("_sysconfigdata", "config-")):
            continue
        code = Path(importlib.util.cache_from_source(source)).read_bytes()
        assert code[4:8] == (0b01).to_bytes(4, "little"), f"{source}: not unchecked-hash"
        assert str(PREFIX).encode() not in code, source


if __name__ == "__main__":
    check_prefix()
    check_libraries()
    check_certificates()
    check_processes()
    check_environments()
    check_sysconfig()
    check_byte_code()
    print(sys.version)
