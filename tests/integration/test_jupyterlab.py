"""JupyterLab of the set `full`, in a browser: ranks from a cell, and the button that stops them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.notebooks import bare_environ
from support.releases import installed
from support.run import ok, run
from support.tools import once, pip

pytestmark = [pytest.mark.built, pytest.mark.slow, pytest.mark.timeout(600)]

#: Debian's browser, and the library that plays its user.
CHROMIUM = shutil.which("chromium")
PLAYWRIGHT = "playwright==1.65.2"

SUM = """\
from ddl import notebook
def total():
    import ddl, numpy as np
    print("sums up", flush=True)
    return float(ddl.allreduce(np.ones(3, np.float32)).sum())
notebook.run(total, ranks=2)"""

FOREVER = """\
def wait():
    import os, time
    print("up", os.getpid(), flush=True)
    time.sleep(600)
notebook.run(wait, ranks=2)"""

#: Runs the notebook at an address, stops its last cell, and prints what the cells have shown.
BROWSE = """
import json, re, sys
from playwright.sync_api import sync_playwright
browser, address = sys.argv[1:]
with sync_playwright() as play:
    page = play.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
    page.set_default_timeout(120_000)
    page.goto(address)
    page.get_by_text("| Idle").wait_for()  # the kernel is there, and the menus are the notebook's
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    cells = page.locator(".jp-CodeCell")
    outputs = [cells.nth(n).locator(".jp-OutputArea") for n in range(cells.count())]
    shown = "document.querySelectorAll('.jp-CodeCell')[1].innerText"
    page.wait_for_function(shown + ".match(/ up [0-9]+/g)?.length == 2")
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.get_by_text("Interrupt Kernel", exact=True).click()
    page.wait_for_function("document.body.innerText.includes('KeyboardInterrupt')")
    print(json.dumps([output.inner_text() for output in outputs]))
"""


@pytest.fixture(scope="module")
def release() -> Path:
    return installed("ddl-ce-full", "make full")


@pytest.fixture(scope="module")
def playwright() -> Path:
    """A Python with the library."""

    def make(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip(folder / "bin" / "python", "install", PLAYWRIGHT)

    if not CHROMIUM:
        pytest.skip("there is no browser: apt-get install chromium")
    return once(PLAYWRIGHT.replace("==", "-"), make) / "bin" / "python"


@pytest.fixture
def home() -> Iterator[Path]:
    """Short: Jupyter's and MPI's sockets have to fit."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def server(release: Path, home: Path) -> Iterator[str]:
    """The address of a notebook with the release's kernel, in a JupyterLab of nobody's shell."""
    subprocess.run(
        [sys.executable, "-m", "ddlce", "env", "kernel", "--release", release],
        env=os.environ | {"HOME": str(home)},
        check=True,
    )
    cell: dict[str, object] = {
        "cell_type": "code",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    notebook = {
        "cells": [{**cell, "id": f"c{n}", "source": text} for n, text in enumerate([SUM, FOREVER])],
        "metadata": {"kernelspec": {"name": "ddl-ce-full", "display_name": "x"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (home / "note.ipynb").write_text(json.dumps(notebook))
    command = [str(release / "bin" / "jupyter"), "lab", "--no-browser", "--allow-root", "--port=0"]
    process = subprocess.Popen(
        command, env=bare_environ(home), cwd=home, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr
    try:
        begin = re.compile(r"(http://127[.]0[.]0[.]1:\d+)/lab\?(token=\w+)")
        found = next(filter(None, map(begin.search, process.stderr)), None)
        assert found, "JupyterLab has not started"
        yield f"{found[1]}/lab/tree/note.ipynb?{found[2]}"
    finally:
        process.terminate()
        process.wait(60)


def test_ranks_from_a_cell_and_the_button_that_stops_them(server: str, playwright: Path) -> None:
    done = ok(run([playwright, "-c", BROWSE, str(CHROMIUM), server]))
    total, forever = json.loads(done.stdout)
    assert sorted(re.findall(r"\[\d@localhost\] sums up", total)) == [
        "[0@localhost] sums up",
        "[1@localhost] sums up",
    ]
    assert "[6.0, 6.0]" in total
    assert "KeyboardInterrupt" in forever
    ranks = re.findall(r" up (\d+)", forever)
    assert len(ranks) == 2
    assert not any(Path("/proc", rank).exists() for rank in ranks)
