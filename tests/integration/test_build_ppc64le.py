"""`ddlce build --platform linux-ppc64le`: compiled here, run and tested as on POWER, published."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from ddlce.emulate import ensure_sysroot
from ddlce.platforms import PLATFORMS
from ddlce.settings import load_settings
from support.minitree import MiniTree
from support.run import ok

POWER = "linux-ppc64le"
COMPILER = "powerpc64le-linux-gnu-gcc"

pytestmark = [
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no {COMPILER}: ddlce doctor"),
    pytest.mark.skipif(
        not any(map(shutil.which, PLATFORMS[POWER].emulators)), reason="no qemu-user: make ppc64le"
    ),
]

#: A program that says which processor it runs on.
SCRIPT = """
cat > name.c << 'EOF'
#include <stdio.h>
#include <sys/utsname.h>
int main(void) { struct utsname u; uname(&u); return puts(u.machine) < 0; }
EOF
mkdir -p $PREFIX/bin
COMPILER -O2 name.c -Wl,--build-id=none -o $PREFIX/bin/machine-name
"""


@pytest.fixture
def power(tree: MiniTree) -> MiniTree:
    """The tree with a compiled recipe `machine`, and the emulator's glibc of the real tree."""
    settings = load_settings()
    sysroot = ensure_sysroot(settings, POWER)
    (tree.folder / "cache" / "emulate").mkdir(parents=True)
    (tree.folder / "cache" / "emulate" / sysroot.name).symlink_to(sysroot)
    locked = yaml.safe_load((settings.sources_lock).read_text())["sources"]
    tree.lock_sources([s for s in locked if s["package"] == "libc6"])
    write(tree, COMPILER, 'test \\"$(machine-name)\\" = ppc64le', "test -f $PREFIX/share/lib")
    return tree


def write(tree: MiniTree, compiler: str, *tests: str) -> Path:
    script = SCRIPT.replace("COMPILER", compiler)
    folder = tree.recipe("machine", run="app", script=script, test='", "'.join(tests))
    text = (folder / "recipe.yaml").read_text().replace("noarch: generic, ", "")
    needs = 'run: [app, "__glibc >=2.34"]'
    (folder / "recipe.yaml").write_text(text.replace("run: [app]", needs))
    return folder


def test_a_package_is_built_tested_and_published(power: MiniTree) -> None:
    done = power.ddlce("build", "--platform", POWER, "machine", DDLCE_BUILD_PATH="/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    stored = power.folder / "cache" / "packages"
    assert [p.name.split("-")[0] for p in (stored / POWER).glob("*.conda")] == ["machine"]
    assert not (stored / "linux-64").exists()

    refused = power.ddlce("index", "--platform", POWER)
    assert refused.returncode == 1, refused.stderr
    assert "not built yet: machine" in refused.stderr  # that of linux-64

    write(power, "gcc", 'test \\"$(machine-name)\\" = x86_64')
    assert power.ddlce("build", DDLCE_BUILD_PATH="/usr/bin:/bin").returncode == 0
    write(power, COMPILER, 'test \\"$(machine-name)\\" = ppc64le')
    skip = power.repo / "recipes" / "machine" / "recipe.yaml"
    skip.write_text(
        skip.read_text().replace("build: {", f'build: {{skip: target_platform != "{POWER}", ')
    )
    assert (
        power.ddlce("build", "--platform", POWER, DDLCE_BUILD_PATH="/usr/bin:/bin").returncode == 0
    )
    ok(power.ddlce("index", "--platform", POWER))
    data = json.loads((power.repo / "channel" / POWER / "repodata.json").read_text())
    assert [record["name"] for record in data["packages.conda"].values()] == ["machine"]
    noarch = json.loads((power.repo / "channel" / "noarch" / "repodata.json").read_text())
    assert {record["name"] for record in noarch["packages.conda"].values()} == {
        *("base", "lib", "app")
    }


@pytest.mark.slow
def test_a_byte_of_this_machine_is_refused(power: MiniTree) -> None:
    write(power, "gcc", "true")
    done = power.ddlce("build", "--platform", POWER, "machine", DDLCE_BUILD_PATH="/usr/bin:/bin")
    assert done.returncode == 1
    assert "machine bin/machine-name: is for EM_X86_64, not for linux-ppc64le" in done.stderr
    assert not (power.folder / "cache" / "packages" / POWER).exists()


@pytest.mark.slow
def test_a_failing_test_on_the_emulated_machine_is_a_failure(power: MiniTree) -> None:
    write(power, COMPILER, 'test \\"$(machine-name)\\" = x86_64')
    done = power.ddlce("build", "--platform", POWER, "machine", DDLCE_BUILD_PATH="/usr/bin:/bin")
    assert done.returncode == 1
    assert "failed in phase 'test'" in done.stderr
    assert f"ddlce debug machine --platform {POWER}\n" in done.stderr
    inside = "bash conda_build.sh && $PREFIX/bin/machine-name"
    shown = power.ddlce("debug", "machine", "--platform", POWER, "--command", inside)
    assert shown.stdout.endswith("ppc64le\n"), shown.stderr
