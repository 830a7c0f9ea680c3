"""Write the library that stands in for CUDA: `nocuda.py NAMES DATA`, to nocuda.cc and nocuda.map.

NAMES has a symbol a line, `name` or `name@version`, that PyTorch's libraries want of NVIDIA's
libraries and of its own part for CUDA. DATA has those of them that are not functions. A function of
the runtime says that there is no GPU; any other raises an error that Python programs get to see.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

#: cudaErrorNoDevice, and CUPTI_ERROR_NOT_INITIALIZED.
NO_DEVICE, NOT_INITIALIZED = 100, 15

HEAD = """\
// Made by nocuda.py.
#include <malloc.h>

#include <cstring>
#include <stdexcept>
#include <string>

namespace {
const char *const kWhy = "this PyTorch is for CPUs, and has no CUDA";
[[noreturn]] void refuse(const char *name) {
  throw std::runtime_error(std::string(name) + ": " + kWhy);
}
void nothing() { refuse("a virtual function"); }
void *slot;
void idle() {}
struct TypeInfo {
  void **table;
  const char *name;
};
}  // namespace
extern "C" void *class_type_info[] __asm__("_ZTVN10__cxxabiv117__class_type_infoE");
namespace {
TypeInfo options_type{class_type_info + 2, "N4c10d16ProcessGroupNCCL7OptionsE"};
void *const any = (void *)idle;
void *const options_table[] = {nullptr, &options_type, any, any, any, any, any, any, any, any};
// Python's function for a group of NCCL has options as its default, which are made when it is
// defined: of what they are, only the table of virtual functions is looked at. They stay for good.
void make_options(const void *const **object) {
  static bool made = false;
  if (made) refuse("ProcessGroupNCCL.Options");
  made = true;
  memset((void *)object, 0, malloc_usable_size(object));
  *object = options_table + 2;
}
}  // namespace
extern "C" {
"""

#: What answers in another way than the others of its library.
ANSWERS = {
    "cudaGetErrorString": "const char *{f}(int) {{ return kWhy; }}",
    "cudaGetErrorName": "const char *{f}(int) {{ return kWhy; }}",
    "cudaGetLastError": "int {f}() {{ return 0; }}",
    # No error, which the profiler would report each time.
    "cudaGetDeviceCount": "int {f}(int *count) {{ *count = 0; return 0; }}",
    # As the runtime itself says where there is no driver.
    "cudaDriverGetVersion": "int {f}(int *version) {{ *version = 0; return 0; }}",
    "cudaRuntimeGetVersion": "int {f}(int *version) {{ *version = 0; return 0; }}",
    "cuptiGetResultString": "int {f}(int, const char **text) {{ *text = kWhy; return 0; }}",
    "_ZN4c10d17nvshmem_extension20is_nvshmem_availableEv": "bool {f}() {{ return false; }}",
    "_ZN4c10d16ProcessGroupNCCL7OptionsC1Eb": "void {f}(const void *const **object, bool) "
    "{{ make_options(object); }}",
    # A place for a function of Python's that NCCL's part would call.
    "_ZN4c10d15get_gil_checkerEv": "void **{f}() {{ return &slot; }}",
}


def function(number: int, name: str) -> list[str]:
    """The lines that define a function."""
    f = f"f{number}"
    if name in ANSWERS:
        body = ANSWERS[name].format(f=f)
    elif name.startswith("cuda"):
        body = f"int {f}() {{ return {NO_DEVICE}; }}"
    elif name.startswith("cupti"):
        body = f"int {f}() {{ return {NOT_INITIALIZED}; }}"
    elif name.startswith("_ZN3sdp"):  # whether a kernel for GPUs can be used
        body = f"bool {f}() {{ return false; }}"
    else:
        body = f'void {f}() {{ refuse("{name}"); }}'
    head = body.partition(" {")[0]
    return [f'{head} __asm__("{name}");', body]


def variable(number: int, name: str) -> list[str]:
    """The lines that define a variable: a class's typeinfo or table of virtual functions."""
    v = f"v{number}"
    if name.startswith("_ZTI"):
        content = f'(void *)(class_type_info + 2), (void *)"{name.removeprefix("_ZTI")}"'
    else:
        content = ", ".join(["nullptr", "nullptr", *["(void *)nothing"] * 62])
    return [f'extern void *{v}[] __asm__("{name}");', f"void *{v}[] = {{{content}}};"]


def version_map(names: Iterable[tuple[str, str]]) -> str:
    """A linker's map that gives names their versions."""
    versions: dict[str, list[str]] = {}
    for name, version in names:
        if version:
            versions.setdefault(version, []).append(name)
    return "".join(
        f"{version} {{\n{''.join(f'  {name};{chr(10)}' for name in sorted(found))}}};\n"
        for version, found in sorted(versions.items())
    )


def main() -> None:
    """Read the names, write both files."""
    names, data = (Path(path).read_text().split() for path in sys.argv[1:3])
    pairs = [(name, version) for name, _, version in (n.partition("@") for n in names)]
    lines = [
        line
        for number, (name, _) in enumerate(pairs)
        for line in (variable if name in data else function)(number, name)
    ]
    Path("nocuda.cc").write_text(HEAD + "\n".join(lines) + '\n}  // extern "C"\n')
    Path("nocuda.map").write_text(version_map(pairs))


if __name__ == "__main__":
    main()
