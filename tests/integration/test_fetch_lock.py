"""`ddlce sources`: entries of sources.lock, made from addresses and from recipes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event

from ddlce.model.source import SourcesLock
from ddlce.settings import Settings
from ddlce.sources.store import SourceStore
from support.run import ok
from support.sourceserver import Server, ddlce, lock, publish

RECIPE = """\
package: {{name: lib, version: "1"}}
source:
  url: {url}
  sha256: {sha256}
"""


def test_sources_add_url_wants_a_digest(server: Server, settings: Settings) -> None:
    source = publish(server, "lib-1.2.tar.gz")
    unsure = ddlce(settings, "sources", "add", f"url:{source.url}")
    assert unsure.returncode == 2
    assert source.sha256 in unsure.stderr
    wrong = ddlce(settings, "sources", "add", f"url:{source.url}", "--sha256", "0" * 64)
    assert wrong.returncode == 4
    assert not (settings.sources_lock).exists()
    ok(ddlce(settings, "sources", "add", f"url:{source.url}", "--sha256", source.sha256))
    (locked,) = SourcesLock.load(settings.sources_lock).sources
    assert (locked.package, locked.version) == ("lib", "1.2")


def test_sources_add_waits_for_who_writes_the_file(server: Server, settings: Settings) -> None:
    source = publish(server, "lib-1.2.tar.gz")
    store = SourceStore(settings.sources)
    add = ("sources", "add", f"url:{source.url}", "--sha256", source.sha256)
    with ThreadPoolExecutor(1) as pool:
        with store.writing(source, Event()):
            waiting = pool.submit(ddlce, settings, *add)
            wait([waiting], timeout=15)
            assert not store.path(source).exists()
        assert waiting.result().returncode == 0
    assert store.intact(source)


def test_sync_makes_lock_and_recipes_agree(server: Server, settings: Settings) -> None:
    wanted, unused = publish(server, "lib-1.tar"), publish(server, "unused.tar")
    folder = settings.recipes / "lib"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(RECIPE.format(url=wanted.url, sha256=wanted.sha256))
    lock(settings, unused)
    before = ddlce(settings, "sources", "check")
    assert before.returncode == 1
    assert "lib-1.tar" in before.stderr
    assert "unused.tar) is used by no recipe" in before.stderr
    ok(ddlce(settings, "sources", "sync"))
    assert [s.file for s in SourcesLock.load(settings.sources_lock).sources] == ["lib-1.tar"]
    assert ddlce(settings, "sources", "check").returncode == 0
    (folder / "recipe.yaml").write_text(RECIPE.format(url=wanted.url, sha256="f" * 64))
    wrong = ddlce(settings, "sources", "sync")
    assert wrong.returncode == 4
    assert "recipe.yaml" in wrong.stderr
    assert wanted.sha256 in wrong.stderr
