"""A package with an extension in C and one in C++."""

from setuptools import Extension, setup

setup(
    name="compiled",
    version="1",
    py_modules=[],
    ext_modules=[
        Extension("compiled_c", ["c.c"]),
        Extension("compiled_cxx", ["cxx.cpp"], extra_compile_args=["-std=c++17"]),
    ],
)
