"""`ddlce plan|build|index|debug` on a small real tree: real engine, real processes, real kills."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from ddlce.audit import read_channel
from ddlce.env.layout import LOCK_COPY, ORIGIN, Layout, Origin
from ddlce.model.envlock import LockedPackage
from ddlce.trees import remove_tree
from support import lockpair
from support.minitree import MiniTree, make_tree
from support.packages import package_files
from support.run import ok, run


def test_build_then_reuse_then_only_what_changed(tree: MiniTree) -> None:
    first = ok(tree.ddlce("build", "--json"))
    assert json.loads(first.stdout[first.stdout.index("{") :])["built"].keys() == {
        "base",
        "lib",
        "app",
    }
    assert tree.ddlce("build").stdout == "build: all 3 recipes are built already\n"
    (tree.repo / "recipes" / "app" / "LICENSE").write_text("MIT, again\n")
    again = tree.ddlce("build", "--json")
    assert json.loads(again.stdout[again.stdout.index("{") :])["built"].keys() == {"app"}


def test_a_prescribed_build_string_is_refused(tree: MiniTree) -> None:
    """Other inputs would make other bytes under the same name."""
    recipe = tree.repo / "recipes" / "base" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("h${{ digest }}_0", "fixed"))
    done = tree.ddlce("build", "base")
    assert done.returncode == 2
    assert "in which there is no digest" in done.stderr
    assert tree.packages() == {}


def test_plan_explains(tree: MiniTree) -> None:
    assert tree.ddlce("build").returncode == 0
    script = tree.repo / "recipes" / "base" / "build.sh"
    script.write_text(script.read_text() + "true\n")
    lines = tree.ddlce("plan", "--explain").stdout.splitlines()
    text = "\n".join(lines)
    assert "         file build.sh changed" in lines
    assert "         depends on base changed" in lines
    assert text.count("build  ") == 2
    assert text.count("reuse  ") == 1
    steps = {s["recipe"]: s for s in json.loads(tree.ddlce("plan", "--json").stdout)}
    assert steps["lib"]["action"] == "build"
    assert steps["app"]["action"] == "reuse"


def test_same_bytes_in_another_folder_at_another_time(tree: MiniTree, tmp_path: Path) -> None:
    compile_c = (
        "printf '#include <stdio.h>\\nint main(void){return puts(P)<0;}' > a.c\n"
        'gcc -O2 -g0 -Wl,--build-id=none -DP="\\"$PREFIX\\"" a.c -o a.out\n'
        "mkdir -p $PREFIX/bin\ncp a.out $PREFIX/bin/where\n"
        'python3 -c \'open("x.py","w").write("x=1")\'\n'
    )
    for copy in (tree, make_tree(tmp_path / "another" / "and-longer")):
        test = "where | grep -F $PREFIX"
        folder = copy.recipe("base", script=compile_c, test=test, run="'__glibc >=2.34,<3.0.a0'")
        recipe = (folder / "recipe.yaml").read_text().replace("noarch: generic, ", "")
        (folder / "recipe.yaml").write_text(recipe)
        ok(copy.ddlce("build", DDLCE_BUILD_PATH="/usr/bin:/bin"))
        time.sleep(1.1)
    assert tree.packages() == copy.packages()
    assert len(tree.packages()) == 3


def test_a_failing_script_shows_package_phase_log_and_debug_command(tree: MiniTree) -> None:
    tree.recipe("lib", build="base", script="echo the-last-words\nexit 7")
    result = tree.ddlce("build")
    assert result.returncode == 1
    assert "error: lib: failed in phase 'build'" in result.stderr
    assert "│ the-last-words" in result.stderr.replace("+ echo ", "")
    assert "hint:  for a shell in its build folder: ddlce debug lib" in result.stderr
    assert "not built for this: app" in result.stderr
    assert "Traceback" not in result.stderr
    log = Path(result.stderr.split("log: ")[1].splitlines()[0])
    assert "the-last-words" in log.read_text()
    assert [n for n in tree.packages() if n.startswith("lib")] == []


def test_a_failing_test_publishes_nothing(tree: MiniTree) -> None:
    tree.recipe("lib", test="test -f $PREFIX/share/absent")
    result = tree.ddlce("build")
    assert result.returncode == 1
    assert "error: lib: failed in phase 'test'" in result.stderr
    assert [n for n in tree.packages() if n.startswith("lib")] == []


def test_a_leaked_build_folder_is_refused(tree: MiniTree) -> None:
    tree.recipe("lib", script="mkdir -p $PREFIX/share\necho $SRC_DIR > $PREFIX/share/leak")
    result = tree.ddlce("build")
    assert result.returncode == 1
    assert "error: lib: failed in phase 'check'" in result.stderr
    assert "share/leak" in result.stderr


def test_keep_going_builds_what_does_not_depend_on_the_failure(tree: MiniTree) -> None:
    tree.recipe("aaa", script="exit 1")
    result = tree.ddlce("build", "--keep-going", "--jobs", "1")
    assert result.returncode == 1
    assert "error: aaa: failed in phase 'build'" in result.stderr
    assert {n.partition("-")[0] for n in tree.packages()} == {"base", "lib", "app"}


def test_debug_runs_in_the_folder_of_the_failed_build(tree: MiniTree) -> None:
    tree.recipe("lib", build="base", script="echo kept > witness\nexit 7")
    assert tree.ddlce("build").returncode == 1
    inside = tree.ddlce("debug", "lib", "-c", "cat witness; ls $BUILD_PREFIX/share; exit 5")
    assert inside.returncode == 5
    assert inside.stdout == "kept\nbase\n"
    fresh = tree.ddlce("debug", "lib", "--fresh", "-c", "ls witness $BUILD_PREFIX/share/base")
    assert fresh.returncode == 2
    assert fresh.stdout.endswith("/share/base\n")


def test_debug_names_what_must_be_built_first(tree: MiniTree) -> None:
    result = tree.ddlce("debug", "lib")
    assert result.returncode == 1
    assert "lib stands on packages that are not built: base" in result.stderr


def test_a_source_that_is_not_locked(tree: MiniTree) -> None:
    folder = tree.recipe("lib")
    recipe = (folder / "recipe.yaml").read_text()
    source = "source: {url: 'https://example.org/x.tar.gz', sha256: " + "0" * 64 + "}\n"
    (folder / "recipe.yaml").write_text(recipe + source)
    result = tree.ddlce("build", "lib")
    assert result.returncode == 2
    assert "is not in sources.lock" in result.stderr
    assert "lib/recipe.yaml" in result.stderr


def test_an_unknown_package_is_an_error(tree: MiniTree) -> None:
    result = tree.ddlce("build", "nonsense")
    assert result.returncode == 2
    assert "error: nonsense: no such recipe or package" in result.stderr


def test_killed_builds_are_resumed_and_leave_no_process(tree: MiniTree) -> None:
    may_end = tree.folder / "may-end"
    tree.recipe("base", script=f"test -e {may_end} || sleep 120")
    chance = random.Random(7)
    for _ in range(4):
        process = tree.start("build")
        time.sleep(chance.uniform(0.3, 4.0))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        # A worker that has just been started first has to notice.
        deadline = time.monotonic() + 30
        while has_worker(tree) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not has_worker(tree), "a worker outlived its scheduler"
    may_end.touch()
    ok(tree.ddlce("build"))
    assert len(tree.packages()) == 3
    assert list(tree.settings.work.glob("*/out")) == []


def has_worker(tree: MiniTree) -> bool:
    command = ["pgrep", "-f", f"ddlce.builder.worker {tree.settings.work}"]
    return run(command).returncode == 0


def test_two_builders_share_the_work(tree: MiniTree) -> None:
    tree.recipe("base", script="sleep 2")
    both = [tree.start("build", "--json") for _ in range(2)]
    results = [process.communicate(timeout=120) for process in both]
    assert [p.returncode for p in both] == [0, 0], results
    assert len(tree.packages()) == 3


def test_index_needs_everything_built_and_publishes_exactly_the_plan(tree: MiniTree) -> None:
    refused = tree.ddlce("index")
    assert refused.returncode == 1
    assert "not built yet: base, lib, app" in refused.stderr
    tree.ddlce("build")
    assert tree.ddlce("index").returncode == 0
    channel = tree.repo / "channel" / "noarch"
    before = set(json.loads((channel / "repodata.json").read_text())["packages.conda"])
    assert before == {p.name for p in channel.glob("*.conda")}
    assert len(before) == 3
    (tree.repo / "recipes" / "app" / "LICENSE").write_text("changed\n")
    tree.ddlce("build")
    report = json.loads(tree.ddlce("index", "--json").stdout)
    assert [Path(name).name.partition("-")[0] for name in report["added"]] == ["app"]
    after = set(json.loads((channel / "repodata.json").read_text())["packages.conda"])
    assert after == {p.name for p in channel.glob("*.conda")}
    assert len(after - before) == 1
    assert len(before - after) == 1
    assert (channel / "repodata.json.zst").exists()
    assert (channel / "repodata_shards.msgpack.zst").exists()


def test_index_keeps_the_files_that_a_lock_names(tree: MiniTree) -> None:
    """For explicit lists and rollbacks; the index has one build of each version all the same."""
    tree.ddlce("build")
    assert tree.ddlce("index").returncode == 0
    channel = tree.repo / "channel" / "noarch"
    (old,) = channel.glob("app-*.conda")
    record = json.loads((channel / "repodata.json").read_text())["packages.conda"][old.name]
    package = LockedPackage.model_validate(
        {key: record[key] for key in ("name", "version", "build", "subdir", "sha256", "size")}
        | {"file": old.name}
    )
    lock = lockpair.lock(package, env="toys", release="1", specs=["app"], virtual_packages={})
    prefix = Layout(tree.settings.root).prefix("toys", "1", lock.digest)
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / LOCK_COPY).write_text(lock.to_yaml())
    origin = Origin(
        kind="release",
        env="toys",
        release="1",
        digest=lock.digest,
        platform="linux-64",
        manifest="0" * 64,
        channels={},
        specs=[],
        pkgs="",
    )
    (prefix / ORIGIN).write_text(origin.model_dump_json())
    content = old.read_bytes()
    for turn in range(2):
        (tree.repo / "recipes" / "app" / "LICENSE").write_text(f"turn {turn}\n")
        tree.ddlce("build")
        assert tree.ddlce("index").returncode == 0
        named = json.loads((channel / "repodata.json").read_text())["packages.conda"]
        assert len(named) == 3
        assert old.name not in named
        assert {p.name for p in channel.glob("*.conda")} == {*named, old.name}
        assert old.read_bytes() == content
        assert all(len(builds) == 1 for builds in read_channel([channel.parent]).values())
    old.unlink()
    assert tree.ddlce("index").returncode == 0
    assert old.read_bytes() == content  # again from the store
    remove_tree(prefix)
    assert tree.ddlce("index").returncode == 0
    assert not old.exists()


def test_a_python_package_of_this_tree_is_known_to_pip_and_not_pypi_s(tree: MiniTree) -> None:
    info = "site-packages/toy-1.0.dist-info"
    tree.recipe(
        "base", script=f"mkdir -p $PREFIX/{info}\necho 'Name: toy' > $PREFIX/{info}/METADATA"
    )
    assert tree.ddlce("build", "base").returncode == 0
    (package,) = (tree.settings.store / "noarch").glob("base-*.conda")
    files = package_files(package)
    assert files[f"{info}/INSTALLER"] == b"conda\n"
    record = files[f"{info}/RECORD"].decode().splitlines()
    assert [line.partition(",")[0].removeprefix("toy-1.0.dist-info/") for line in record] == [
        *("../../../share/base", "INSTALLER", "METADATA", "RECORD")
    ]
    assert json.loads(files["info/index.json"])["purls"] == []


def test_killed_index_leaves_a_readable_channel(tree: MiniTree) -> None:
    tree.ddlce("build")
    tree.ddlce("index")
    channel = tree.repo / "channel" / "noarch"
    chance = random.Random(11)
    for turn in range(6):
        (tree.repo / "recipes" / "app" / "LICENSE").write_text(f"turn {turn}\n")
        tree.ddlce("build")
        process = tree.start("index")
        time.sleep(chance.uniform(0.4, 1.4))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        named = json.loads((channel / "repodata.json").read_text())["packages.conda"]
        assert len(named) == 3
        assert all((channel / name).stat().st_size == named[name]["size"] for name in named)
    assert tree.ddlce("index").returncode == 0
    assert len(list((tree.repo / "channel").glob(".generation-*"))) <= 2  # the last one, too


@pytest.mark.skipif(
    run(["unshare", "-m", "true"]).returncode != 0,
    reason="needs root, to mount a small file system",
)
def test_a_full_disk_and_a_read_only_cache_are_named(tree: MiniTree) -> None:
    cache = tree.settings.cache
    for options, expected in (("size=1m,mode=755", "free under"), ("ro,mode=755", "cannot write")):
        script = f'mkdir -p {cache} && mount -t tmpfs -o {options} tmpfs {cache} && exec "$@"'
        result = run(
            [
                "unshare",
                "-m",
                "sh",
                "-c",
                script,
                "sh",
                "python3",
                "-c",
                "import os,sys; os.execv(sys.argv[1], sys.argv[1:])",
                sys.executable,
                "-m",
                "ddlce",
                "build",
            ],
            env=tree.env(),
        )
        assert result.returncode == 3, result.stderr
        assert expected in result.stderr
        assert "Traceback" not in result.stderr


def test_a_recipe_that_changes_after_the_plan_is_not_built(tree: MiniTree) -> None:
    """`first` runs alone, and changes the script of what stands on it."""
    second = tree.repo / "recipes" / "second" / "build.sh"
    tree.recipe("first", script=f"echo '# edited' >> {second}")
    tree.recipe("second", build="first")
    result = tree.ddlce("build", "second")
    assert result.returncode == 1
    assert "since the plan was made: build.sh" in result.stderr
    assert not list(tree.settings.store.glob("*/second-*"))
    assert tree.ddlce("build", "second").returncode == 0


def test_index_mends_a_package_that_was_overwritten(tree: MiniTree) -> None:
    assert tree.ddlce("build").returncode == 0
    assert tree.ddlce("index").returncode == 0
    package = next((tree.repo / "channel" / "noarch").glob("app-*.conda"))
    good = package.read_bytes()
    package.unlink()  # it is a link to the store's
    package.write_bytes(bytes(len(good)))
    assert tree.ddlce("index").returncode == 0
    assert package.read_bytes() == good


def test_what_is_needed_through_a_package_that_stays_is_waited_for(tree: MiniTree) -> None:
    """The package between is not built again when what it only runs with changes."""
    tree.recipe("base")
    tree.recipe("between", run="base")
    tree.recipe("top", build="between")
    assert tree.ddlce("build", "top").returncode == 0
    tree.recipe("base", script="sleep 4")
    tree.recipe("top", build="between", script=": changed")
    done = ok(tree.ddlce("build", "top", "--jobs", "2"))
    assert "build: 2 of 3 recipes" in done.stdout + done.stderr


def test_all_of_a_platform_that_the_environment_is_not_for(tree: MiniTree) -> None:
    """Before anything is built, which may take an hour."""
    (tree.repo / "envs").mkdir()
    (tree.repo / "envs" / "toys.yaml").write_text(
        'name: toys\nrelease: "2026.11"\nsummary: Toys.\n'
        'platforms: {linux-64: {glibc: "2.28"}}\nspecs: [app]\n'
    )
    done = tree.ddlce("all", "toys", "--platform", "linux-ppc64le")
    assert (done.returncode, done.stdout) == (2, "")
    assert "envs/toys.yaml is not for linux-ppc64le, but for linux-64" in done.stderr


def test_an_environment_without_a_manifest_is_told_before_anything_is_built(tree: MiniTree) -> None:
    done = tree.ddlce("all", "nosuch")
    assert done.returncode == 2
    assert "there is no environment manifest" in done.stderr
    assert not tree.settings.store.exists()
