"""Every module that needs a library of the base, doing what it is for, at this prefix."""

import bz2
import ctypes
import curses
import curses.panel
import hashlib
import importlib.util
import lzma
import multiprocessing
import os
import pyexpat
import readline
import sqlite3
import ssl
import sys
import sysconfig
import uuid
import zlib
from pathlib import Path

PREFIX = Path(os.environ["PREFIX"])
DATA = bytes(range(256)) * 64

# Where it is: the prefix it is installed to, not the one it was built for.
assert Path(sys.prefix) == PREFIX, sys.prefix
assert sys.version_info[:3] == (3, 11, 2), sys.version
assert sys.implementation.cache_tag == "cpython-311"
libraries = [line.split()[-1] for line in open("/proc/self/maps") if ".so" in line]
libpython = {line for line in libraries if "libpython3.11.so" in line}
assert libpython == {str((PREFIX / "lib/libpython3.11.so.1.0").resolve())}, libpython

# The libraries: round trips and known answers.
for module in (bz2, lzma, zlib):
    assert module.decompress(module.compress(DATA)) == DATA, module
assert hashlib.sha256(b"abc").hexdigest().startswith("ba7816bf8f01cfea")
assert {"sha3_512", "blake2b", "md5"} <= hashlib.algorithms_available
assert sqlite3.connect(":memory:").execute("select json('[1]'), sqrt(4)").fetchone() == ("[1]", 2.0)
assert uuid.uuid1().version == 1 and uuid._generate_time_safe, "the _uuid module is missing"
assert ctypes.CDLL(None).abs(-42) == 42
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
numbers = (ctypes.c_int * 3)(3, 1, 2)
ctypes.CDLL(None).qsort(numbers, 3, 4, compare(lambda a, b: a[0] - b[0]))
assert list(numbers) == [1, 2, 3]
readline.add_history("line")
assert readline.get_history_item(1) == "line"
assert "libedit" not in (readline.__doc__ or "")
curses.setupterm("xterm-256color", 1)
assert curses.tigetnum("colors") == 256
assert pyexpat.native_encoding == "UTF-8"

# TLS finds the prefix's certificates without being told.
assert ssl.OPENSSL_VERSION.startswith("OpenSSL 3.0."), ssl.OPENSSL_VERSION
os.environ.pop("SSL_CERT_FILE", None)
assert Path(ssl.get_default_verify_paths().openssl_cafile) == PREFIX / "ssl/cert.pem"
context = ssl.create_default_context()
assert context.cert_store_stats()["x509_ca"] > 100, context.cert_store_stats()

# All these came from the prefix; the machine's copies were not looked at.
maps = Path("/proc/self/maps").read_text()
for name in ("ssl", "crypto", "sqlite3", "ffi", "lzma", "bz2", "z", "readline", "ncursesw",
             "tinfow", "panelw", "uuid", "expat"):
    found = {line.split()[-1] for line in maps.splitlines() if f"/lib{name}.so" in line}
    assert found and all(path.startswith(str(PREFIX.resolve())) for path in found), (name, found)

# What was left out stays out.
for name in ("tkinter", "idlelib", "lib2to3", "ensurepip", "test", "nis", "_crypt", "_gdbm", "_dbm"):
    assert importlib.util.find_spec(name) is None, name

# Processes and locks work (semaphores, shared memory).
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]

# What extensions will be compiled with names this prefix, and no folder of the build.
variables = sysconfig.get_config_vars()
assert variables["CC"].split()[0] == "gcc", variables["CC"]
assert variables["LIBDIR"] == str(PREFIX / "lib"), variables["LIBDIR"]
assert variables["EXT_SUFFIX"].startswith(".cpython-311-")
text = repr(variables)
for trace in ("prefix-map", "placehold", "rattler-build", "build_env"):
    assert trace not in text, trace

# Byte code is there, and is never checked against its source.
cached = Path(importlib.util.cache_from_source(os.__file__))
assert cached.read_bytes()[4:8] == (0b01).to_bytes(4, "little"), "not unchecked-hash"
print(sys.version)
