"""Programs that would take what others prepared in `/tmp`."""

from __future__ import annotations

import getpass
import importlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from private_caches import MENDED
from private_caches.folder import NAME

COMPILE = """
import torch
torch.compile(lambda x: (x + 1).sin())(torch.ones(8))
print("compiled")
"""

#: As another user would make them, to be found by everybody.
PREPARED = (f"torchinductor_{getpass.getuser()}", ".tensorboard-info", "data-gym-cache")


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """What TMPDIR names: there are folders that everybody may write."""
    for name in PREPARED:
        (tmp_path / "tmp" / name).mkdir(parents=True)
        (tmp_path / "tmp" / name).chmod(0o777)
    return tmp_path / "tmp"


def run(script: str, temporary: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    home = temporary.with_name("home")
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": os.defpath, "HOME": str(home), "TMPDIR": str(temporary), **variables},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )


def left(temporary: Path) -> list[str]:
    """What lies in the folder for temporary files, beside the prepared folders, or in them."""
    found = [path.relative_to(temporary).as_posix() for path in temporary.rglob("*")]
    return sorted(set(found) - set(PREPARED))


def test_compiled_code_is_in_the_user_s_own_cache(temporary: Path) -> None:
    done = run(COMPILE, temporary)
    assert done.stdout == "compiled\n", done.stderr
    assert left(temporary) == []
    cache = temporary.with_name("home") / ".cache" / NAME / "torchinductor"
    assert list(cache.rglob("*.so"))
    # Hosts that share the home may have another kind of processor.
    assert [path.name.partition("-")[0] for path in cache.iterdir()] == [os.uname().machine]


def test_one_sentence_refuses_a_cache_that_others_may_write(temporary: Path) -> None:
    cache = temporary.with_name("home") / ".cache" / NAME / "torchinductor"
    cache.mkdir(parents=True)
    cache.parent.chmod(0o700)
    cache.chmod(0o777)
    done = run(COMPILE, temporary)
    assert done.returncode == 1
    assert f"{cache} can be written by others (mode 777), so what it holds is not used: " in (
        done.stderr
    )
    assert list(cache.iterdir()) == []


def test_who_has_no_home_compiles_and_leaves_an_empty_folder(temporary: Path) -> None:
    done = run(COMPILE, temporary, HOME="/proc/none")
    assert done.stdout == "compiled\n", done.stderr
    # The empty folder stays: what the program has started may still use its name.
    (folder,) = left(temporary)
    assert folder.startswith(f"{os.uname().machine}-")
    assert not list((temporary / folder).iterdir())


def test_the_user_s_own_choice_is_respected(temporary: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    done = run(COMPILE, temporary, TORCHINDUCTOR_CACHE_DIR=str(chosen))
    assert done.stdout == "compiled\n", done.stderr
    assert list(chosen.rglob("*.so"))


def test_tensorboard_s_notes_are_the_user_s(temporary: Path) -> None:
    pytest.importorskip("tensorboard")
    # Another user's, so that TensorBoard cannot start: seen on many clusters.
    (temporary / ".tensorboard-info").chmod(0o555)
    script = (
        "from tensorboard import manager\n"
        "print(manager._get_info_file_path())\n"
        "assert manager.get_all() == []\n"
    )
    done = run(script, temporary)
    assert done.stdout.startswith(f"{temporary.with_name('home')}/.cache/{NAME}/tensorboard/"), (
        done.stderr
    )


@pytest.mark.parametrize("module", ["keras", "tf_keras"])
def test_kerases_settings_are_not_read_from_tmp(temporary: Path, module: str) -> None:
    pytest.importorskip("keras")
    script = f"import {module}, os; print(os.environ['KERAS_HOME'])"
    done = run(script, temporary, HOME="/proc/none")
    folder = Path(done.stdout.strip())
    assert folder.parent == temporary, done.stderr
    assert left(temporary) == [folder.name]


def test_downloads_of_older_kerases_are_not_read_from_tmp(temporary: Path, tmp_path: Path) -> None:
    pytest.importorskip("tf_keras")
    (tmp_path / "data").write_text("data")
    script = f"import tf_keras\nprint(tf_keras.utils.get_file('data', 'file://{tmp_path}/data'))\n"
    done = run(script, temporary, HOME="/proc/none")
    assert done.stdout.splitlines()[-1].startswith(f"{temporary}/keras-"), done.stderr


@pytest.mark.parametrize("name", MENDED)
def test_each_module_is_still_there_to_be_mended(name: str) -> None:
    """What is mended by name must not have moved in a newer version."""
    site = Path(sysconfig.get_path("purelib"))
    if not (site / name.partition(".")[0]).is_dir():
        pytest.skip("not in this environment")
    path = site / name.replace(".", "/")
    assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
    text = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    wanted = {
        "flores_folder": "_FLORES_LOCAL_DIR,",
        "inductor_folder": "\ndef default_cache_dir() -> str:",
        "keras_downloads": "\ndef get_file(",
        "keras_home": '"KERAS_HOME"',
        "temporary_folder": "gettempdir()",
        "tensorboard_folder": "\ndef _get_info_dir():",
        "tiktoken_folder": "\ndef read_file_cached(",
        "own_compilers.torch_compilers:extensions": "\ndef get_cxx_compiler():",
        "own_compilers.torch_compilers:inductor": '"g++"',
    }
    assert wanted[MENDED[name]] in text.read_text(encoding="utf-8")


def test_temporary_folders_of_modules_are_the_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = importlib.import_module("torch._inductor.cache")
    assert cache.OnDiskCache("name").base_dir == tmp_path / NAME / "torch" / "cache" / "name"
    dynamo = importlib.import_module("torch._dynamo.debug_utils")
    assert dynamo.tempfile.gettempdir() == str(tmp_path / NAME / "torch")
    assert dynamo.tempfile is not importlib.import_module("tempfile")


def test_virtual_environments_on_top_have_it(tmp_path: Path) -> None:
    """As overlays are."""
    venv = tmp_path / "venv"
    options = ("--system-site-packages", "--without-pip")
    subprocess.run([sys.executable, "-m", "venv", *options, venv], check=True)
    done = subprocess.run(
        [venv / "bin" / "python", "-c", "import sys; print(sys.meta_path[0])"],
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "private_caches" in done.stdout
