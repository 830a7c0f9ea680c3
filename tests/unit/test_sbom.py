"""The bill of materials of a release: what it finds in packages, and what it writes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from ddlce.errors import DdlceError, SourceError, WorkError
from ddlce.sbom.carried import of_library, of_metadata, of_sbom
from ddlce.sbom.collect import Tree, collect
from ddlce.sbom.cyclonedx import to_cyclonedx
from ddlce.sbom.model import Carried, Component, Patch
from ddlce.sbom.release import Release
from ddlce.sbom.spdx import to_spdx
from ddlce.sbom.write import make_sboms, write_sboms
from ddlce.settings import Settings
from support import lockpair
from support.minichannel import TIMESTAMP, Pkg, pack

SITE = "lib/python3.11/site-packages"
ELF = b"\x7fELF and more"
SERIES = "# Debian's, in its order\nquick.diff # a crash\nCVE-2024-0450.patch\n"
SOURCE, WHEEL, PLAIN = "a" * 64, "b" * 64, "c" * 64

SOURCES = f"""sources:
- {{client: debian-source, package: toylib, version: 1.0-2, file: toylib_1.0.orig.tar.gz, size: 1,
   sha256: {SOURCE}}}
- {{client: pypi-wheel, package: Toy_Wheel, version: "2.0", file: toy_wheel-2.0-py3-none-any.whl,
   size: 1, sha256: {WHEEL}, wheel: {{name: toy, version: "2.0", tags: [], pure: true}}}}
- {{client: url, package: plain, file: plain.tar.gz, size: 1, sha256: {PLAIN},
   url: "https://example.org/plain.tar.gz"}}
"""

#: As cargo's and auditwheel's tools write them: the wheel itself, a module of it, parts of others.
OF_WHEEL = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.4",
    "metadata": {"component": {"name": "toy", "bom-ref": "r", "purl": "pkg:pypi/toy@2.0?a=b"}},
    "components": [
        {"name": "toy", "version": "2.0", "purl": "pkg:pypi/toy@2.0"},
        {"name": "toy._c", "version": "2.0", "purl": "pkg:pypi/toy@2.0#c-ext/toy._c"},
        {
            "name": "aes",
            "version": "0.8.4",
            "purl": "pkg:cargo/aes@0.8.4?download_url=file:///home/them",
            "licenses": [{"expression": "MIT/Apache-2.0"}],
        },
        {"name": "odd", "version": "1", "purl": "no purl", "licenses": [{"expression": "Ours!"}]},
        {"name": "unnumbered"},
    ],
}


def inputs(**named: str) -> bytes:
    return json.dumps({"inputs": named}).encode()


def toys() -> list[Pkg]:
    series = hashlib.sha256(SERIES.encode()).hexdigest()
    source = {"source toylib_1.0.orig.tar.gz": SOURCE, "source plain.tar.gz": PLAIN}
    patches = {"file patches/0001-ours.patch": f"-{'d' * 64}", "file security.series": f"-{series}"}
    return [
        Pkg(
            "python",
            "3.11.7",
            files={"bin/python3.11": ELF, "info/ddl-ce.json": inputs(**source, **patches)},
        ),
        Pkg(
            "toy",
            "2.0",
            depends=["python >=3.11", "absent"],
            files={
                "info/ddl-ce.json": inputs(**{"source toy_wheel-2.0-py3-none-any.whl": WHEEL}),
                "info/licenses/LICENSE": "Do as you like.\n",
                f"{SITE}/toy/_c.so": ELF,
                f"{SITE}/toy.libs/libpng16-abb096d5.so.16.58.0": ELF,
                f"{SITE}/toy/py.typed": "",
                f"{SITE}/toy-2.0.dist-info/METADATA": "",
                f"{SITE}/toy/_vendor/More_Itertools-10.8.dist-info/METADATA": "",
                f"{SITE}/toy-2.0.dist-info/sboms/auditwheel.cdx.json": json.dumps(OF_WHEEL),
            },
            about={"license": "MIT AND LicenseRef-Toy"},
        ),
        Pkg(
            "plain",
            noarch="python",
            files={
                "info/ddl-ce.json": inputs(),
                "site-packages/plain/_vendor/zipp-3.0.dist-info/METADATA": "",
                "site-packages/plain/wrong/odd.so": ELF,
            },
        ),
    ]


class Made:
    """A tree, a channel and a lock of the toys."""

    def __init__(self, folder: Path, packages: list[Pkg] | None = None) -> None:
        self.channel = folder / "channel"
        self.settings = Settings(folder / "tree", folder / "cache", folder / "root")
        (folder / "tree" / "recipes" / "python").mkdir(parents=True)
        (folder / "tree" / "sources.lock").write_text(SOURCES)
        (folder / "tree" / "recipes" / "python" / "security.series").write_text(SERIES)
        locked = [
            lockpair.locked_package(
                package,
                pack(package, self.channel),
                timestamp=TIMESTAMP,
                noarch=package.noarch,
            )
            for package in packages or toys()
        ]
        self.lock = lockpair.lock(*locked, env="mini", specs=["toy"], virtual_packages={})

    def components(self) -> dict[str, Component]:
        found = collect(self.lock, self.channel, Tree.of(self.settings))
        return {component.name: component for component in found}

    def texts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        cdx, spdx = make_sboms(self.settings, self.lock, self.channel).values()
        return json.loads(cdx), json.loads(spdx)


def test_sources_patches_and_licences_are_found(tmp_path: Path) -> None:
    found = Made(tmp_path).components()
    python, toy = found["python"], found["toy"]
    assert [(o.file, o.sha256, o.purl, o.url) for o in python.origins] == [
        ("toylib_1.0.orig.tar.gz", SOURCE, "pkg:deb/debian/toylib@1.0-2?arch=source", ""),
        ("plain.tar.gz", PLAIN, "", "https://example.org/plain.tar.gz"),
    ]
    assert python.patches == (
        Patch("quick.diff", backport=True),
        Patch("CVE-2024-0450.patch", backport=True, holes=("CVE-2024-0450",)),
        Patch("patches/0001-ours.patch", "d" * 64),
    )
    wheel = "pkg:pypi/toy-wheel@2.0?file_name=toy_wheel-2.0-py3-none-any.whl"
    assert [origin.purl for origin in toy.origins] == [wheel]
    assert toy.license == "MIT AND LicenseRef-Toy"
    assert toy.texts == {"LICENSE": "Do as you like.\n"}
    assert toy.depends == ("python",)
    assert toy.purl == "pkg:conda/toy@2.0?build=h0_0&subdir=linux-64&type=conda"


def test_compiled_files_and_what_others_have_made_are_found(tmp_path: Path) -> None:
    found = Made(tmp_path).components()
    assert found["python"].compiled == ("bin/python3.11",)
    library = f"{SITE}/toy.libs/libpng16-abb096d5.so.16.58.0"
    assert found["toy"].compiled == (library, f"{SITE}/toy/_c.so")
    told = f"{SITE}/toy-2.0.dist-info/sboms/auditwheel.cdx.json"
    metadata = f"{SITE}/toy/_vendor/More_Itertools-10.8.dist-info/METADATA"
    vendored = "pkg:pypi/more-itertools@10.8"
    assert found["toy"].carried == (
        Carried("aes", "0.8.4", "pkg:cargo/aes@0.8.4", "", told, "MIT OR Apache-2.0"),
        Carried("libpng16", "", "", library, library),
        Carried("more-itertools", "10.8", vendored, "", metadata),
        Carried("odd", "1", "", "", told),
    )
    # The files of a package for every Python are where this Python has them.
    assert found["plain"].compiled == (f"{SITE}/plain/wrong/odd.so",)
    assert found["plain"].carried[0].purl == "pkg:pypi/zipp@3.0"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("scipy.libs/libgfortran-040039e1-0352e75f.so.5.0.0", "libgfortran"),
        ("numpy.libs/libscipy_openblas64_-32a4b2a6.so", "libscipy_openblas64_"),
        ("torchvision.libs/libz.b9a71669.so.1", "libz"),
        ("torch/lib/libgomp.so.1", "libgomp"),
        ("toy.libs/libplain.so", "libplain"),
        ("toy/libtoy_framework.so.2", ""),
        ("toy.libs/libtoy_extra.so", ""),
        ("torch/lib/libtorch_cpu.so", ""),
        ("torch/_C.cpython-311-x86_64-linux-gnu.so", ""),
    ],
)
def test_libraries_of_others_are_told_by_their_names(path: str, name: str) -> None:
    found = of_library(f"{SITE}/{path}", "toy")
    assert (found.name if found else "") == name
    assert of_library(f"lib/{path}", "toy") is None  # of a package that is built here


def test_a_distribution_s_own_metadata_is_not_another_s() -> None:
    assert of_metadata(f"{SITE}/toy-2.0.dist-info/METADATA") is None
    assert of_metadata(f"{SITE}/toy/_vendor/a/zipp-3.0.dist-info/METADATA") is not None


def test_both_formats_are_valid_and_say_the_same(tmp_path: Path) -> None:
    made = Made(tmp_path)
    files = write_sboms(make_sboms(made.settings, made.lock, made.channel), tmp_path / "out")
    names = ["mini-2026.11-linux-64.cdx.json", "mini-2026.11-linux-64.spdx.json"]
    assert [path.name for path in files] == names
    text = files[0].read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert validate_full_spdx_document(parse_file(str(files[1]))) == []
    cdx, spdx = json.loads(text), json.loads(files[1].read_text())
    names = [component["name"] for component in cdx["components"]]
    assert sorted(names) == ["plain", "python", "toy"]
    inside = {part["name"] for c in cdx["components"] for part in c.get("components", ())}
    sources = {
        a["name"] for c in cdx["components"] for a in c.get("pedigree", {}).get("ancestors", ())
    }
    assert {package["name"] for package in spdx["packages"]} == {"mini", *names, *inside, *sources}


def test_cyclonedx_has_pedigree_evidence_and_dependencies(tmp_path: Path) -> None:
    cdx, _ = Made(tmp_path).texts()
    parts = {part["name"]: part for part in cdx["components"]}
    assert cdx["metadata"]["timestamp"] == "2026-01-01T00:00:00+00:00"
    patches = parts["python"]["pedigree"]["patches"]
    assert sorted((p["type"], p["diff"]["url"].partition("#")[0]) for p in patches) == [
        ("backport", "CVE-2024-0450.patch"),
        ("backport", "quick.diff"),
        ("unofficial", "patches/0001-ours.patch"),
    ]
    assert [p["resolves"][0]["id"] for p in patches if "resolves" in p] == ["CVE-2024-0450"]
    assert parts["toy"]["licenses"] == [{"expression": "MIT AND LicenseRef-Toy"}]
    evidence = parts["toy"]["evidence"]
    assert evidence["licenses"][0]["license"]["text"]["content"] == "Do as you like.\n"
    assert f"{SITE}/toy/_c.so" in {where["location"] for where in evidence["occurrences"]}
    edges = {edge["ref"]: edge.get("dependsOn", []) for edge in cdx["dependencies"]}
    assert edges[parts["toy"]["bom-ref"]] == [parts["python"]["bom-ref"]]
    assert len(edges["mini-2026.11-linux-64"]) == 3


def test_spdx_has_sources_parts_and_unlisted_licences(tmp_path: Path) -> None:
    _, spdx = Made(tmp_path).texts()
    packages = {package["name"]: package for package in spdx["packages"]}
    assert packages["toy"]["licenseDeclared"] == "MIT AND LicenseRef-Toy"
    [extracted] = spdx["hasExtractedLicensingInfos"]
    assert extracted["licenseId"] == "LicenseRef-Toy"
    assert extracted["extractedText"] == "Do as you like.\n"
    assert packages["toy"]["attributionTexts"] == ["LICENSE:\nDo as you like.\n"]
    assert "as upstream has it later: CVE-2024-0450.patch" in packages["python"]["sourceInfo"]
    found = {
        (r["spdxElementId"], r["relationshipType"], r["relatedSpdxElement"])
        for r in spdx["relationships"]
    }
    toy, python = packages["toy"]["SPDXID"], packages["python"]["SPDXID"]
    assert (toy, "DEPENDS_ON", python) in found
    assert (toy, "CONTAINS", packages["libpng16"]["SPDXID"]) in found
    assert (python, "GENERATED_FROM", packages["plain.tar.gz"]["SPDXID"]) in found
    assert packages["plain.tar.gz"]["downloadLocation"] == "https://example.org/plain.tar.gz"


def test_the_same_release_gives_the_same_bytes(tmp_path: Path) -> None:
    made = Made(tmp_path)
    program = (
        "import sys; from pathlib import Path; from ddlce.sbom.write import make_sboms\n"
        "from ddlce.model.envlock import EnvLock; from ddlce.settings import Settings\n"
        "top = Path(sys.argv[1]); settings = Settings(top / 'tree', top / 'cache', top / 'root')\n"
        "print(make_sboms(settings, EnvLock.load(top / 'lock'), top / 'channel'))\n"
    )
    (tmp_path / "lock").write_text(made.lock.to_yaml())
    command = [sys.executable, "-c", program, str(tmp_path)]
    said = {
        subprocess.check_output(command, env={"PYTHONHASHSEED": seed, "TZ": zone})
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    }
    assert len(said) == 1
    other = made.lock.model_copy(update={"release": "2026.12"})
    assert Release.of(other).number != Release.of(made.lock).number


def broken(data: object) -> list[Pkg]:
    text = data if isinstance(data, str) else json.dumps(data)
    return [
        Pkg("toy", files={"lib/toy-1.dist-info/sboms/x.json": text, "info/ddl-ce.json": inputs()})
    ]


@pytest.mark.parametrize("data", ["{", [], {"spdxVersion": "SPDX-2.3"}, "[" * 200])
def test_a_wheel_s_broken_sbom_is_named(tmp_path: Path, data: object) -> None:
    with pytest.raises(SourceError, match=r"toy-1\.0-h0_0\.conda: lib/toy-1\.dist-info/sboms/x"):
        Made(tmp_path, broken(data)).components()


def test_what_is_not_of_this_tree_or_lock_is_named(tmp_path: Path) -> None:
    made = Made(tmp_path)

    def refused() -> str:
        with pytest.raises(DdlceError) as caught:
            made.components()
        return caught.value.message

    series = made.settings.recipes / "python" / "security.series"
    series.write_text(SERIES + "new.patch\n")
    assert (
        refused()
        == "python-3.11.7-h0_0.conda was made with another security.series than this tree's"
    )
    series.write_text(SERIES)
    made.settings.sources_lock.write_text(SOURCES.replace(WHEEL, "e" * 64))
    missing = "was made from toy_wheel-2.0-py3-none-any.whl, which sources.lock does not have"
    assert refused() == f"toy-2.0-h0_0.conda {missing}"
    package = made.channel / "noarch" / "plain-1.0-h0_0.conda"
    package.write_bytes(package.read_bytes() + b"x")
    assert f"{package}: its sha256 is not the locked" in refused()
    package.unlink()
    assert refused() == f"{package}: missing"


def test_an_invalid_text_is_not_written(tmp_path: Path) -> None:
    made = Made(tmp_path)
    release = Release.of(made.lock)
    [first, *_] = made.components().values()
    with pytest.raises(WorkError, match="is no SPDX"):
        to_spdx(release, [first, first])  # two of one id
    with pytest.raises(WorkError, match="is no CycloneDX"):
        to_cyclonedx(release, [replace(first, sha256="not hexadecimal")])


def test_parts_without_a_number_are_left_out() -> None:
    text = json.dumps(OF_WHEEL).encode()
    assert [part.name for part in of_sbom("a/toy-2.0.dist-info/sboms/x.json", text)] == [
        "aes",
        "odd",
    ]


def test_without_the_libraries_it_says_where_they_are(tmp_path: Path) -> None:
    made = Made(tmp_path)
    (tmp_path / "lock").write_text(made.lock.to_yaml())
    program = (
        "import sys; sys.modules['packageurl'] = None\n"
        "from ddlce.cli.app import main; sys.argv = ['ddlce', *sys.argv[1:]]; main()"
    )
    command = [sys.executable, "-c", program, "sbom", "--lock", str(tmp_path / "lock")]
    command += ["--channel", str(made.channel)]
    environ = {"DDLCE_REPO": str(tmp_path / "tree"), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "error: this ddlce cannot write SBOMs, as it has no packageurl",
        "hint:  use the one of the source tree: .venv/bin/ddlce",
    ]
    assert not (made.channel / "sbom").exists()
    del command[command.index("--channel") :]
    program = program.replace("sys.modules['packageurl'] = None\n", "pass\n")
    command[2] = program
    environ["DDLCE_CHANNEL"] = str(made.channel)
    said = subprocess.check_output(command, env=environ, text=True)
    folder = made.channel / "sbom"
    names = ("mini-2026.11-linux-64.cdx.json", "mini-2026.11-linux-64.spdx.json")
    assert said.split() == [str(folder / name) for name in names]
    assert all((folder / name).is_file() for name in names)
