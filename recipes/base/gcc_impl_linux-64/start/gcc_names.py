"""The programs of GCC and binutils by name: those of any compiler that is packaged here."""

from __future__ import annotations

MAJOR = "12"

#: The drivers of each package. `cpp` is one more, where no other package has it.
DRIVERS = {"gcc": ("gcc", "gcc-ar", "gcc-nm", "gcc-ranlib"), "gxx": ("g++",)}
PREPROCESSOR = ("cpp",)

#: What else build scripts call them.
OTHER_NAMES = {"gcc": "cc", "gxx": "c++"}
INNER = {"gcc": ("cc1", "collect2", "lto1", "lto-wrapper"), "gxx": ("cc1plus",)}
BINUTILS = (
    *("addr2line", "ar", "as", "c++filt", "ld", "nm", "objcopy", "objdump", "ranlib", "readelf"),
    *("size", "strings", "strip"),
)
#: Those that GCC's programs start, or look for.
FOR_GCC = ("ar", "as", "ld", "nm", "objcopy", "ranlib", "strip")
