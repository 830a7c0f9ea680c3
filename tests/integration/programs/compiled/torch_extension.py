"""Compiles C++ functions for PyTorch and calls them; its errors are caught in C++ and here."""

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
// The type of the exception is PyTorch's, thrown in one of its libraries.
bool refused(torch::Tensor x, torch::Tensor y) {
  try {
    x.matmul(y);
  } catch (const c10::Error&) {
    return true;
  }
  return false;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("twice", &twice);
  m.def("refused", &refused);
}
"""
folder = Path(sys.argv[1])
(folder / "twice.cpp").write_text(SOURCE)
extension = load("twice", [str(folder / "twice.cpp")], build_directory=str(folder))
assert extension.twice(torch.arange(3)).tolist() == [0, 2, 4]
assert extension.refused(torch.ones(2, 3), torch.ones(2, 3))
assert not extension.refused(torch.ones(2, 3), torch.ones(3, 2))
try:
    extension.twice(torch.zeros(2, 2))
except RuntimeError as error:
    print("caught", str(error).splitlines()[0])
