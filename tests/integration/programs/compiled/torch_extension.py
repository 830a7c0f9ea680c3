"""Compiles a C++ function for PyTorch and calls it; an error of PyTorch comes through it."""

import sys
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

SOURCE = """
#include <torch/extension.h>
torch::Tensor twice(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 1, "one dimension, please");
  return 2 * x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
"""
folder = Path(sys.argv[1])
(folder / "twice.cpp").write_text(SOURCE)
twice = load("twice", [str(folder / "twice.cpp")], build_directory=str(folder)).twice
assert twice(torch.arange(3)).tolist() == [0, 2, 4]
try:
    twice(torch.zeros(2, 2))
except RuntimeError as error:
    print("caught", str(error).splitlines()[0])
