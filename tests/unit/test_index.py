"""The channel's index: one generation, switched at once, mended and never half-made."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zstandard

from ddlce.engine.index import (
    GENERATION,
    REPODATA,
    index_channel,
    index_is_current,
    publish_index,
)
from ddlce.files import sha256_file
from support.minichannel import Pkg, pack

Packages = list[tuple[str, Path]]


def build(store: Path, **contents: str) -> Packages:
    """A package of each name with that content."""
    store.mkdir(parents=True, exist_ok=True)
    for old in store.glob("*/*.conda"):
        old.unlink()  # a link of it, in a channel, stays as it was
    packages = [Pkg(name, files={f"share/{name}": text}) for name, text in contents.items()]
    return [("linux-64", pack(pkg, store)) for pkg in packages]


def described(channel: Path) -> set[str]:
    """Name and sha256 of each package by each form of the index, which must be the same."""
    subdir = channel / "linux-64"
    packed = (subdir / "repodata.json.zst").read_bytes()
    forms = [
        (subdir / "repodata.json").read_bytes(),
        (subdir / "current_repodata.json").read_bytes(),
        zstandard.ZstdDecompressor().stream_reader(packed).read(),
    ]
    found = []
    for form in forms:
        records = json.loads(form)["packages.conda"]
        found.append({f"{name} {record['sha256']}" for name, record in records.items()})
    exports = json.loads((subdir / "run_exports.json").read_bytes())["packages.conda"]
    assert found[0] == found[1] == found[2]
    assert {each.split()[0] for each in found[0]} == exports.keys()
    for each in found[0]:
        name, digest = each.split()
        assert sha256_file(subdir / name) == digest
    return found[0]


@pytest.mark.parametrize("change", ["added", "rebuilt"])
@pytest.mark.parametrize("step", ["_fill", "link_atomic", "_show"])
def test_killed_before_any_step_the_channel_is_whole_and_the_next_run_mends_it(
    tmp_path: Path, change: str, step: str
) -> None:
    channel, store = tmp_path / "channel", tmp_path / "store"
    publish_index(channel, build(store, a="1"))
    before = described(channel)
    packages = build(store, a="1", b="1") if change == "added" else build(store, a="2, rebuilt")
    code = (
        "import os, sys; from pathlib import Path; import ddlce.engine.index as index\n"
        f"real, left = index.{step}, [{int(step == '_show')}]\n"  # it first shows the old one
        f"index.{step} = lambda *given: real(*given) if left and left.pop() else os._exit(9)\n"
        "index.publish_index(Path(sys.argv[1]), [('linux-64', Path(p)) for p in sys.argv[2:]])"
    )
    paths = [str(path) for _, path in packages]
    done = subprocess.run([sys.executable, "-c", code, channel, *paths], check=False)
    assert done.returncode == 9
    seen = described(channel)  # of the old generation or of the new one
    assert (seen == before) == (step != "_show")
    assert index_is_current(channel, packages) == (step == "_show")
    publish_index(channel, packages)
    assert index_is_current(channel, packages)
    assert len(described(channel)) == len(packages)
    publish_index(channel, packages)
    assert len(list(channel.glob(f"{GENERATION}-*"))) <= 2  # the last one is kept for its readers


def test_a_damaged_index_is_made_anew(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    packages = build(tmp_path / "store", a="1")
    publish_index(channel, packages)
    for file in [*(channel / "linux-64" / name for name in REPODATA), channel / "channeldata.json"]:
        good = file.read_bytes()
        for damage in (b"", b"[]", good[:-1]):
            file.write_bytes(damage)
            assert not index_is_current(channel, packages)
        file.write_bytes(good)
        assert index_is_current(channel, packages)
    for text in ("", "[]", "{"):
        (channel / "linux-64/repodata.json").write_text(text)
        publish_index(channel, packages)
        assert len(described(channel)) == 1


def test_a_channel_as_it_was_before_there_were_generations(tmp_path: Path) -> None:
    channel, packages = tmp_path / "channel", build(tmp_path / "store", a="1")
    publish_index(tmp_path / "other", packages)
    channel.mkdir()
    for name in ("linux-64", "noarch"):
        shutil.copytree(tmp_path / "other" / name, channel / name)
    (channel / "channeldata.json").write_text("{}")
    (channel / ".staging-abc").mkdir()
    (channel / "linux-64/patch_instructions.json").write_text("mine")
    packages = [*packages, *build(tmp_path / "more", b="1")]
    assert publish_index(channel, packages) == ["linux-64/b-1.0-h0_0.conda"]
    assert len(described(channel)) == 2
    assert index_is_current(channel, packages)
    publish_index(channel, packages)
    assert {path.name for path in channel.iterdir() if not path.name.startswith(GENERATION)} == {
        *("linux-64", "noarch", "channeldata.json"),
    }
    assert (channel / "linux-64/patch_instructions.json").read_text() == "mine"


def test_what_others_put_there_and_other_platforms_stay(tmp_path: Path) -> None:
    channel, packages = tmp_path / "channel", build(tmp_path / "store", a="1")
    power = pack(Pkg("p", subdir="linux-ppc64le"), tmp_path / "power")
    publish_index(channel, [*packages, ("linux-ppc64le", power)])
    (channel / "README").write_text("mine")
    (channel / "linux-64/notes").mkdir()
    (channel / "linux-64/notes/README").write_text("mine")
    (channel / "linux-64/latest").symlink_to("a-1.0-h0_0.conda")
    old_shards = {path.name for path in (channel / "linux-64/shards").iterdir()}
    packages = build(tmp_path / "store", a="2", b="1")
    publish_index(channel, packages)
    assert (channel / "README").read_text() == (channel / "linux-64/notes/README").read_text()
    assert (channel / "linux-64/latest").readlink() == Path("a-1.0-h0_0.conda")
    assert (channel / "linux-ppc64le" / power.name).samefile(power)
    assert power.name in (channel / "linux-ppc64le/repodata.json").read_text()
    shards = {path.name for path in (channel / "linux-64/shards").iterdir()}
    assert old_shards < shards  # whoever has the old index still finds them, until the next run
    publish_index(channel, packages)
    assert not old_shards & {path.name for path in (channel / "linux-64/shards").iterdir()}


def test_a_kept_file_is_in_the_folder_and_in_no_index(tmp_path: Path) -> None:
    channel, packages = tmp_path / "channel", build(tmp_path / "store", a="1")
    (kept,) = build(tmp_path / "old", z="1")
    publish_index(channel, packages, [kept])
    assert (channel / "linux-64" / kept[1].name).samefile(kept[1])
    assert len(described(channel)) == 1
    assert index_is_current(channel, packages, [kept])
    kept[1].unlink()  # now only the channel has it
    again = ("linux-64", channel / "linux-64" / kept[1].name)
    publish_index(channel, packages, [again])
    assert again[1].is_file()
    assert index_is_current(channel, packages, [again])


CHANGE = """
import sys, time
from pathlib import Path
import ddlce.engine.index as index
from ddlce.channel import update_channel
from ddlce.plan import Plan
from ddlce.settings import Settings
tree, cache, slow = map(Path, sys.argv[1:])
describe = index.describe_channel
def slowly(*given):
    slow.touch()
    time.sleep(2)
    return describe(*given)
if slow.name == "slow":
    index.describe_channel = slowly
plan = Plan(subdir="linux-64", steps={})
update_channel(Settings(repo=tree, cache=cache, root=tree / "root"), plan)
"""


def test_two_with_different_caches_wait_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "channel").mkdir()
    command: list[str | Path] = [sys.executable, "-c", CHANGE, tmp_path]
    first = subprocess.Popen([*command, tmp_path / "one", tmp_path / "slow"])
    while not (tmp_path / "slow").exists():
        assert first.poll() is None
        time.sleep(0.05)
    second = subprocess.run([*command, tmp_path / "two", tmp_path / "quick"], check=False)
    assert (first.wait(60), second.returncode) == (0, 0)
    assert index_is_current(tmp_path / "channel", [])


def test_an_index_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    build(tmp_path, a="1")
    (tmp_path / "linux-64/repodata.json").mkdir()
    with pytest.raises(OSError, match="Is a directory") as caught:
        index_channel(tmp_path)
    assert caught.value.filename == str(tmp_path)


@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")
def test_a_machine_without_certificates(tmp_path: Path) -> None:
    """rattler panics where it finds none; an empty Debian has none."""
    build(tmp_path / "store", one="1")
    shutil.copytree(tmp_path / "store", tmp_path / "channel")
    code = "import os, sys; from pathlib import Path; from ddlce.engine.index import index_channel"
    code += "; index_channel(Path(sys.argv[1])); os._exit(0)"  # as programs with rattler end
    cage = ["bwrap", "--die-with-parent", "--unshare-net", "--dev-bind", "/", "/"]
    cage += ["--tmpfs", "/etc/ssl", "--unsetenv", "SSL_CERT_FILE", "--unsetenv", "SSL_CERT_DIR"]
    subprocess.run([*cage, sys.executable, "-c", code, tmp_path / "channel"], check=True)
    assert (tmp_path / "channel" / "linux-64" / "repodata.json").is_file()
