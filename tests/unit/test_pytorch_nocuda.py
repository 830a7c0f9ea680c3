"""The library that stands in for CUDA in linux-aarch64's PyTorch, made for this machine."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest

from support.run import run

SCRIPT = Path(__file__).parents[2] / "recipes/aarch64/pytorch_linux-aarch64/nocuda.py"

NAMES = """
cudaGetDeviceCount@libcudart.so.13 cudaGetErrorString@libcudart.so.13 cudaFree@libcudart.so.13
cuptiSubscribe@libcupti.so.13 ncclDevCommDestroy _ZN2at4cuda5sleepEl
_ZN3sdp31can_use_mem_efficient_attentionERKNS_10sdp_paramsEb _ZN4c10d15get_gil_checkerEv
_ZN4c10d16ProcessGroupNCCL7OptionsC1Eb _ZTIN4c10d16ProcessGroupNCCLE _ZTVN5torch3jit1XE
"""
DATA = "_ZTIN4c10d16ProcessGroupNCCLE _ZTVN5torch3jit1XE"

#: Calls what has no answer, as PyTorch does: from C++ that hands errors on.
CALLER = """
#include <cstdio>
#include <stdexcept>
#include <typeinfo>
namespace at::cuda { void sleep(long); }
namespace c10d {
struct ProcessGroupNCCL {
  struct Options { Options(bool); virtual ~Options(); long more[8]; };
  virtual ~ProcessGroupNCCL();
};
}
int main() {
  try { at::cuda::sleep(1); } catch (const std::exception &error) { puts(error.what()); }
  puts(typeid(c10d::ProcessGroupNCCL).name());
  auto *options = new c10d::ProcessGroupNCCL::Options(false);
  puts(typeid(*options).name());
  printf("%ld\\n", options->more[7]);
  try { new c10d::ProcessGroupNCCL::Options(false); }
  catch (const std::exception &error) { puts(error.what()); }
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nocuda")
    (folder / "names").write_text(NAMES)
    (folder / "data").write_text(DATA)
    run([sys.executable, str(SCRIPT), "names", "data"], cwd=folder, check=True)
    flags = ["-Wall", "-Wno-builtin-declaration-mismatch", "-Wno-return-type-c-linkage"]
    map_file = "-Wl,--version-script=nocuda.map"
    command = ["g++", "-std=c++17", "-shared", "-fPIC", *flags, map_file, "-o", "libno.so"]
    done = run([*command, "nocuda.cc"], cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "libno.so"


def test_the_runtime_says_that_there_is_no_gpu(library: Path) -> None:
    loaded = ctypes.CDLL(str(library))
    count = ctypes.c_int(7)
    assert loaded.cudaGetDeviceCount(ctypes.byref(count)) == 0
    assert count.value == 0
    assert loaded.cudaFree(None) == 100
    assert loaded.cuptiSubscribe() == 15
    loaded.cudaGetErrorString.restype = ctypes.c_char_p
    assert b"for CPUs" in loaded.cudaGetErrorString(100)


def test_names_have_their_versions(library: Path) -> None:
    table = run(["nm", "-D", "--with-symbol-versions", str(library)], check=True).stdout
    assert " T cudaFree@@libcudart.so.13\n" in table
    assert " T cuptiSubscribe@@libcupti.so.13\n" in table
    assert " T ncclDevCommDestroy\n" in table


def test_what_has_no_answer_is_an_error_and_no_crash(library: Path) -> None:
    folder = library.parent
    (folder / "caller.cc").write_text(CALLER)
    command = ["g++", "-std=c++17", "caller.cc", str(library), f"-Wl,-rpath,{folder}"]
    # The destructor of the options is in libtorch_python.so alone.
    run([*command, "-Wl,--unresolved-symbols=ignore-all", "-o", "caller"], cwd=folder, check=True)
    lines = run([str(folder / "caller")], check=True).stdout.splitlines()
    why = "this PyTorch is for CPUs, and has no CUDA"
    assert lines == [
        f"_ZN2at4cuda5sleepEl: {why}",
        "N4c10d16ProcessGroupNCCLE",
        "N4c10d16ProcessGroupNCCL7OptionsE",
        "0",
        f"ProcessGroupNCCL.Options: {why}",
    ]
