"""A small real channel: real packages, really packed and indexed, for the tests of environments.

`python` in it is an interpreter of this machine, with a part of its standard library, so
that environments made from this channel can compile and run Python code. The other packages
are a few files each: prefixes in text and in a compiled program, a `noarch: python` package
with a console script, two versions that exclude each other, one that needs a newer glibc.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import posixpath
import py_compile
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conda_package_streaming.create import conda_builder

from ddlce.engine.index import index_channel
from ddlce.settings import load_settings

#: What stands in packed files for the prefix: as long as conda's own (255 characters).
PLACEHOLDER = ("/opt/placeholder_" + "placehold_" * 30)[:255]
TIMESTAMP = 1_767_225_600_000  # 2026-01-01, in milliseconds
SITE = "lib/python3.11/site-packages"


@dataclass
class Pkg:
    """One package: metadata, and its files as path → content (bytes, text or `-> target`)."""

    name: str
    version: str = "1.0"
    depends: list[str] = field(default_factory=list)
    files: dict[str, bytes | str | Path] = field(default_factory=dict)
    noarch: str | None = None
    subdir: str = "linux-64"
    build: str = "h0_0"
    constrains: list[str] = field(default_factory=list)
    entry_points: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    run_exports: dict[str, list[str]] = field(default_factory=dict)
    #: (a file, the name that paths.json gives it instead), as no proper packer would.
    paths: tuple[str, str] | None = None

    @property
    def stem(self) -> str:
        return f"{self.name}-{self.version}-{self.build}"


def pack(pkg: Pkg, channel: Path) -> Path:
    """Write the package as a `.conda` file into `channel/<subdir>`; returns its path."""
    subdir = "noarch" if pkg.noarch else pkg.subdir
    folder = channel / subdir
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[dict[str, Any]] = []
    with conda_builder(pkg.stem, folder, compression_level=1) as tar:
        for name, content in sorted(pkg.files.items()):
            paths.append(_add(tar, name, content))
            if paths[-1]["path_type"] == "softlink":
                _describe_link(paths[-1], str(content)[3:], pkg.files)
            if pkg.paths and pkg.paths[0] == name:
                paths[-1]["_path"] = pkg.paths[1]
        index = {
            "name": pkg.name,
            "version": pkg.version,
            "build": pkg.build,
            "build_number": 0,
            "depends": pkg.depends,
            "constrains": pkg.constrains,
            "license": "MIT",
            "subdir": subdir,
            "timestamp": TIMESTAMP,
            **({"noarch": pkg.noarch} if pkg.noarch else {}),
            **pkg.extra,
        }
        about = {"home": "https://example.org/", "license": "MIT", "summary": "A toy"}
        _add(tar, "info/about.json", json.dumps(about | pkg.about))
        _add(tar, "info/index.json", json.dumps(index))
        _add(tar, "info/paths.json", json.dumps({"paths": paths, "paths_version": 1}))
        if pkg.run_exports:
            _add(tar, "info/run_exports.json", json.dumps(pkg.run_exports))
        if pkg.noarch == "python":
            link = {"noarch": {"type": "python", "entry_points": pkg.entry_points}}
            _add(tar, "info/link.json", json.dumps({**link, "package_metadata_version": 1}))
    return folder / f"{pkg.stem}.conda"


def _add(tar: tarfile.TarFile, name: str, content: bytes | str | Path) -> dict[str, Any]:
    """Add one member; returns its entry for paths.json."""
    info = tarfile.TarInfo(name)
    info.mtime = TIMESTAMP // 1000
    if isinstance(content, str) and content.startswith("-> "):
        info.type, info.linkname = tarfile.SYMTYPE, content[3:]
        tar.addfile(info)
        return {"_path": name, "path_type": "softlink"}
    if isinstance(content, Path):
        data = content.read_bytes()
        info.mode = 0o755 if os.access(content, os.X_OK) else 0o644
    else:
        data = content.encode() if isinstance(content, str) else content
        info.mode = 0o755 if name.startswith("bin/") else 0o644
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
    entry: dict[str, Any] = {
        "_path": name,
        "path_type": "hardlink",
        "sha256": hashlib.sha256(data).hexdigest(),
        "size_in_bytes": len(data),
    }
    if PLACEHOLDER.encode() in data:
        mode = "binary" if b"\0" in data else "text"
        entry |= {"prefix_placeholder": PLACEHOLDER, "file_mode": mode}
    return entry


def _describe_link(entry: dict[str, Any], text: str, files: dict[str, bytes | str | Path]) -> None:
    """Add what rattler-build has of a link: the sha256 of its target, the length of its text.

    Nothing is known of a target outside the package.
    """
    target = files.get(posixpath.normpath(posixpath.join(posixpath.dirname(entry["_path"]), text)))
    if target is None:
        return
    data = target.read_bytes() if isinstance(target, Path) else target
    data = data.encode() if isinstance(data, str) else data
    entry |= {"sha256": hashlib.sha256(data).hexdigest(), "size_in_bytes": len(text)}


def compiled(text: str) -> bytes:
    """A program that prints the prefix built into it, then `text`."""
    source = (
        f'#include <stdio.h>\nvolatile char prefix[] = "{PLACEHOLDER}/share";\n'
        f'int main(void) {{ puts((char *)prefix); puts("{text}"); return 0; }}\n'
    )
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        subprocess.run(["gcc", "-x", "c", "-", "-o", program], input=source.encode(), check=True)
        return program.read_bytes()


def interpreter_prefix() -> Path:
    """The prefix of our own python, or of the running one where nothing has been built yet.

    A system's python will not do: Debian's neither looks into site-packages nor installs there.
    """
    built = load_settings().root / "envs" / "ddl-ce" / "current"
    return built.resolve() if (built / "bin" / "python3.11").exists() else Path(sys.base_prefix)


def python_files() -> dict[str, bytes | str | Path]:
    """An interpreter, its shared libraries, and what pip and compileall need of its library."""
    base = interpreter_prefix()
    library = base / "lib" / "python3.11"
    skipped = {"site-packages", "test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo"}
    skipped |= {"__pycache__", "pydoc_data", "idle_test", f"config-3.11-{sys.platform}"}
    files: dict[str, bytes | str | Path] = {
        "bin/python3.11": base / "bin" / "python3.11",
        "bin/python3": "-> python3.11",
        "bin/python": "-> python3.11",
        # Python code with the prefix inside: its bytecode must not travel to a clone.
        "lib/python3.11/mini_prefix.py": f'PREFIX = "{PLACEHOLDER}"\n',
    }
    for name in ("python3.11", "z", "ffi", "crypto", "ssl", "bz2", "lzma", "uuid", "expat"):
        for path in (base / "lib").glob(f"lib{name}.so*"):
            files[f"lib/{path.name}"] = path.resolve()
    for folder, names, entries in os.walk(library):
        names[:] = [n for n in names if n not in skipped and not n.startswith("config-3")]
        for entry in entries:
            path = Path(folder, entry)
            if path.suffix in {".py", ".so", ".whl"}:
                files[f"lib/python3.11/{path.relative_to(library)}"] = path
            if path.suffix == ".py" and not left_to_ddlce(path):
                cached = path.relative_to(library).parent / "__pycache__"
                files[f"lib/python3.11/{cached}/{path.stem}.cpython-311.pyc"] = bytecode(path)
    return files


def left_to_ddlce(path: Path) -> bool:
    """True for modules that come without bytecode; compileall itself imports one of them."""
    return path.parent.name == "json" or path.name == "filecmp.py"


def bytecode(path: Path) -> bytes:
    """A module compiled as conda's python package has it: checked by nothing."""
    with tempfile.NamedTemporaryFile() as target:
        py_compile.compile(
            str(path),
            target.name,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        return Path(target.name).read_bytes()


def packages() -> list[Pkg]:
    """The packages of the mini channel."""
    return [
        Pkg("python", "3.11.7", ["__glibc >=2.17", "__unix"], python_files()),
        Pkg(
            "libmini",
            "1.2",
            files={
                "bin/mini-where": compiled("one"),
                "etc/mini.conf": f"prefix={PLACEHOLDER}\n",
                "share/mini/plain.txt": "plain\n",
                "share/mini/link.txt": "-> plain.txt",
            },
        ),
        Pkg("libmini", "2.0", files={"bin/mini-where": compiled("two")}),
        Pkg(
            "minimod",
            "1.0",
            ["python >=3.11,<3.12.0a0", "libmini >=1,<2"],
            {
                "site-packages/minimod/__init__.py": "def main():\n    print(__file__)\n",
                "site-packages/minimod/data.txt": "data\n",
                "site-packages/minimod/broken_template.py": "def {{ name }}():\n",
                **_dist_info("minimod", "1.0"),
            },
            noarch="python",
            entry_points=["minimod = minimod:main"],
            build="pyh0_0",
        ),
        miniarch("0.3"),
        miniarch("0.4"),
        Pkg("mini-all", "2026.11", ["minimod", "miniarch"], noarch="generic", build="0"),
        Pkg("mini-more", "1.0", ["libmini >=1,<2"], {"share/more.txt": "more\n"}),
        Pkg("mini-two", "1.0", ["libmini >=2"], {"share/two.txt": "two\n"}),
        Pkg("mini-future", "1.0", ["__glibc >=2.99"], {"share/future.txt": "f\n"}),
    ]


def miniarch(version: str) -> Pkg:
    """A package with Python code for one platform, and a script."""
    return Pkg(
        "miniarch",
        version,
        ["python >=3.11,<3.12.0a0"],
        {
            f"{SITE}/miniarch/__init__.py": f"VALUE = {version!r}\n",
            # No module that can be imported by its name, but one that is compiled.
            f"{SITE}/miniarch/settings.local.py": "DEBUG = True\n",
            "bin/miniarch": f"#!{PLACEHOLDER}/bin/python\nimport miniarch as m\nprint(m.VALUE)",
        },
    )


def _dist_info(name: str, version: str) -> dict[str, bytes | str | Path]:
    folder = f"site-packages/{name}-{version}.dist-info"
    return {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{folder}/INSTALLER": "conda\n",
    }


def make_channel(folder: Path) -> Path:
    """Build and index the mini channel in `folder`; returns it."""
    for pkg in packages():
        pack(pkg, folder)
    index_channel(folder)
    return folder


MANIFEST = """\
name: mini
release: "2026.11"
summary: A small environment for the tests.
platforms:
  linux-64:
    glibc: "2.36"
specs:
  - mini-all
variables:
  MINI_GREETING: hello
"""
