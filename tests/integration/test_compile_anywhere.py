"""What users compile, in a root that has neither /usr nor a compiler, and nothing activated.

The root has the release, glibc's libraries, and where a case says so a shell, as containers have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.bareroot import alone
from support.run import ok

pytestmark = [pytest.mark.built, pytest.mark.timeout(1200)]

COMPILED = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
torch.manual_seed(0)
x = torch.randn(4, 8)
torch.testing.assert_close(torch.compile(model)(x), model(x))
print("compiled")
"""

INLINE = """
import torch
from torch.utils import cpp_extension
source = "torch::Tensor twice(torch::Tensor x) { return x * 2; }"
module = cpp_extension.load_inline("inline_twice", source, functions=["twice"])
print(module.twice(torch.ones(2)).tolist())
"""

#: By Inductor's other ways: a wrapper in C++, all tuned, and a package that runs without Python.
OTHER_WAYS = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).eval()
x = torch.randn(4, 8)
with torch.no_grad():
    for options in ({"cpp_wrapper": True}, {"max_autotune": True}):
        torch.testing.assert_close(torch.compile(model, options=options)(x), model(x))
        torch._dynamo.reset()
    path = torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,)))
    torch.testing.assert_close(torch._inductor.aoti_load_package(path)(x), model(x))
print("compiled")
"""

OPERATION = """
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
REGISTER_OP("Twice").Input("x: float").Output("y: float");
class Twice : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    const auto& x = context->input(0);
    tensorflow::Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    for (int i = 0; i < x.NumElements(); ++i) y->flat<float>()(i) = 2 * x.flat<float>()(i);
  }
};
REGISTER_KERNEL_BUILDER(Name("Twice").Device(tensorflow::DEVICE_CPU), Twice);
"""

LOADED = """
import subprocess
import tensorflow as tf
flags = [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]
command = ["g++", "-std=c++17", "-shared", "-fPIC", "operation.cc", "-o", "operation.so", *flags]
subprocess.run(command, check=True)
print(tf.load_op_library("./operation.so").twice([1.0, 2.0]).numpy().tolist())
"""

DDP = """
import torch, torch.distributed as dist
dist.init_process_group()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
step = torch.compile(lambda x: model(x).pow(2).mean())
x = torch.full((4, 8), float(dist.get_rank() + 1))
step(x).backward()
plain = torch.nn.Linear(8, 1)
plain.load_state_dict(model.module.state_dict())
ranks = range(dist.get_world_size())
sum(plain(torch.full((4, 8), r + 1.0)).pow(2).mean() / len(ranks) for r in ranks).backward()
torch.testing.assert_close(model.module.weight.grad, plain.weight.grad)
print("averaged by", dist.get_backend())
"""

SHARDED = """
import copy
import torch, torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group()
world = dist.get_world_size()
mesh = init_device_mesh("cpu", (world,))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
plain = copy.deepcopy(model)
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
inputs = [torch.full((4, 8), rank + 1.0) for rank in range(world)]
torch.compile(model)(inputs[dist.get_rank()]).pow(2).mean().backward()
sum(plain(x).pow(2).mean() / world for x in inputs).backward()
for mine, whole in zip(model.parameters(), plain.parameters()):
    torch.testing.assert_close(mine.grad.full_tensor(), whole.grad)
total = torch.compile(lambda x: functional.all_reduce(x * 2, "sum", mesh) + 1, fullgraph=True)
assert total(torch.ones(3)).tolist() == [2.0 * world + 1] * 3
print("sharded by", dist.get_backend())
"""

SETUP = """
from setuptools import Extension, setup
setup(name="answer", version="1", ext_modules=[Extension("answer", ["answer.cpp"], language="c++")])
"""

ANSWER = """
#include <Python.h>
#include <vector>
static PyObject *get(PyObject *, PyObject *) {
  return PyLong_FromLong(std::vector<int>(42).size());
}
static PyMethodDef methods[] = {{"get", get, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "answer", "", -1, methods};
PyMODINIT_FUNC PyInit_answer() { return PyModule_Create(&module); }
"""

MPI = """
#include <mpi.h>
#include <stdio.h>
int main(int count, char **words) {
  int rank;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  printf("rank %d\\n", rank);
  return MPI_Finalize();
}
"""


def test_torch_compile(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COMPILED)  # Dynamo reads the source
    done = alone(prefix, tmp_path, prefix / "bin" / "python", "program.py")
    assert done.stdout == "compiled\n", done.stderr


@pytest.mark.slow
def test_torch_compiles_in_other_ways(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(OTHER_WAYS)
    done = alone(prefix, tmp_path, prefix / "bin" / "python", "program.py")
    assert done.stdout == "compiled\n", done.stderr


def test_operations_of_tensorflow(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "operation.cc").write_text(OPERATION)
    done = alone(prefix, tmp_path, prefix / "bin" / "python", "-c", LOADED)
    assert done.stdout == "[2.0, 4.0]\n", done.stderr


def test_extensions_of_torch(prefix: Path, tmp_path: Path) -> None:
    done = alone(prefix, tmp_path, prefix / "bin" / "python", "-c", INLINE, shell=True)
    assert done.stdout == "[2.0, 2.0]\n", done.stderr


def test_extensions_of_python(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "answer.cpp").write_text(ANSWER)
    python = prefix / "bin" / "python"
    done = ok(alone(prefix, tmp_path, python, "setup.py", "-q", "build_ext", "--inplace"))
    done = alone(prefix, tmp_path, python, "-c", "import answer; print(answer.get())")
    assert done.stdout == "42\n", done.stderr


def test_an_overlay_takes_a_package_from_source(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "answer.cpp").write_text(ANSWER)
    command = (
        "ddlce env overlay ./mine && "
        "mine/bin/pip install -q --no-index --no-build-isolation . && "
        "mine/bin/python -c 'import answer; print(answer.get())'"
    )
    path = f"{prefix}/bin:/bin"
    done = alone(prefix, tmp_path, "/bin/sh", "-c", command, shell=True, PATH=path)
    assert done.stdout.splitlines()[-1:] == ["42"], done.stderr + done.stdout


@pytest.mark.parametrize(
    ("compiler", "name", "source"), [("mpicc", "c", MPI), ("mpicxx", "cpp", MPI)]
)
def test_programs_of_mpi(
    prefix: Path, tmp_path: Path, compiler: str, name: str, source: str
) -> None:
    (tmp_path / f"program.{name}").write_text(source)
    command = f"{compiler} program.{name} -o program && ddlrun -H localhost:2 ./program"
    done = alone(prefix, tmp_path, "/bin/sh", "-c", command, shell=True, PATH=f"{prefix}/bin:/bin")
    said = [line.rpartition("] ")[2] for line in done.stdout.splitlines()]  # ddlrun names the rank
    assert sorted(said) == ["rank 0", "rank 1"], done.stderr


@pytest.mark.parametrize(
    ("program", "word"), [(DDP, "averaged"), (SHARDED, "sharded")], ids=["ddp", "fsdp2"]
)
def test_ranks_train_a_compiled_model(
    prefix: Path, tmp_path: Path, program: str, word: str
) -> None:
    (tmp_path / "program.py").write_text(program)
    command = "ddlrun -H localhost:2 python program.py"
    done = alone(prefix, tmp_path, "/bin/sh", "-c", command, shell=True, PATH=f"{prefix}/bin:/bin")
    said = [line.rpartition("] ")[2] for line in done.stdout.splitlines()]
    assert said == [f"{word} by ddl"] * 2, done.stderr


@pytest.mark.slow
def test_ranks_of_a_host_compile_each_kernel_once(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(DDP)
    compiler = tmp_path / "counted"
    compiler.write_text(
        "#!/bin/sh\n"
        f'for word; do case "$word" in *.cpp) echo "$word" >> {tmp_path}/log ;; esac; done\n'
        f'exec {prefix}/bin/x86_64-conda-linux-gnu-g++ "$@"\n'
    )
    compiler.chmod(0o755)
    command = "ddlrun -H localhost:3 python program.py"
    path = f"{prefix}/bin:/bin"
    done = alone(
        prefix, tmp_path, "/bin/sh", "-c", command, shell=True, PATH=path, CXX=str(compiler)
    )
    assert done.returncode == 0, done.stderr
    compiled = (tmp_path / "log").read_text().splitlines()
    assert compiled
    assert len(compiled) == len(set(compiled))


def test_a_sites_old_compiler_is_no_trouble(prefix: Path, tmp_path: Path) -> None:
    """First on PATH and in CC, CXX and CFLAGS, as modules of clusters set them."""
    (tmp_path / "program.py").write_text(COMPILED)
    for name in ("gcc", "g++", "cc", "c++"):
        program = tmp_path / "old" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            "#!/bin/sh\n"
            f"case $1 in --version) echo '{name} (GCC) 8.5.0 20210514 (Red Hat 8.5.0-4)' ;;\n"
            "*) echo 'error: unrecognized command line option -std=c++20' >&2; exit 1 ;; esac\n"
        )
        program.chmod(0o755)
    variables: dict[str, Any] = {
        "PATH": f"{tmp_path}/old:{prefix}/bin:/bin",
        "CC": f"{tmp_path}/old/gcc",
        "CXX": "g++",
        "CFLAGS": "-march=core2",
    }
    for script in ("program.py", "inline.py"):
        (tmp_path / "inline.py").write_text(INLINE)
        ok(alone(prefix, tmp_path, prefix / "bin/python", script, shell=True, **variables))


def test_a_compiler_that_is_given_is_respected(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COMPILED)
    done = alone(prefix, tmp_path, prefix / "bin" / "python", "program.py", CXX="/no/such/g++")
    assert done.returncode == 1
    assert "/no/such/g++" in done.stderr
