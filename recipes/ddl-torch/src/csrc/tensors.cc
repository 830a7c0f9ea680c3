#include "tensors.h"

#include <ddl/ddl.h>

#include "error.h"

namespace ddl_torch {
namespace {

void check_same_device(const char* what, const at::Tensor& one, const at::Tensor& other) {
  if (one.device() == other.device()) return;
  refuse(c10::str(what, ": the tensors are on ", one.device(), " and ", other.device(),
                  "; all must be on one device"));
}

}  // namespace

void check_device(const char* what, const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return;
  if (!tensor.device().is_cuda()) {
    refuse(c10::str(what, ": the tensor is on ", tensor.device(),
                    "; ddl takes tensors on the CPU and on CUDA GPUs"));
  }
  if (ddl_cuda_library()[0] == '\0') {
    refuse(c10::str(what, ": the tensor is on ", tensor.device(),
                    "; this build of ddl takes CPU tensors only; install the CUDA variant of ddl"));
  }
}

void check_tensor(const char* what, const at::Tensor& tensor) {
  if (!tensor.defined()) refuse(c10::str(what, ": a tensor is missing"));
  check_device(what, tensor);
  if (tensor.layout() != at::kStrided) {
    refuse(c10::str(
        what, ": sparse tensors are not supported, except by all_reduce; call to_dense() first"));
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    refuse(c10::str(what, ": a lazily conjugated or negated tensor; ",
                    "call resolve_conj() or resolve_neg() first"));
  }
}

void check_tensors(const char* what, const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) check_tensor(what, tensor);
}

void check_one(const char* what, const Tensors& tensors) {
  if (tensors.size() != 1) {
    refuse(c10::str(what, ": takes one tensor, but got ", tensors.size()));
  }
}

at::Tensor& only(const char* what, Tensors& tensors) {
  check_one(what, tensors);
  check_tensor(what, tensors[0]);
  return tensors[0];
}

void check_parts(const char* what, const at::Tensor& own, const Tensors& tensors, int rank) {
  for (const at::Tensor& tensor : tensors) {
    check_tensor(what, tensor);
    check_same_device(what, own, tensor);
    if (tensor.scalar_type() != own.scalar_type()) {
      refuse(c10::str(what, ": the tensors are of ", own.scalar_type(), " and ",
                      tensor.scalar_type(), "; all must be of one type"));
    }
  }
  if (tensors[rank].numel() != own.numel()) {
    refuse(c10::str(what, ": this rank's tensor has ", own.numel(), " elements, but number ", rank,
                    " of the list, which is for it, has ", tensors[rank].numel()));
  }
}

void check_blocks(const char* what, const at::Tensor& one, const at::Tensor& all, int n) {
  check_tensor(what, one);
  check_tensor(what, all);
  check_same_device(what, one, all);
  if (one.scalar_type() != all.scalar_type() || one.numel() * n != all.numel()) {
    refuse(c10::str(what, ": the larger tensor must have ", n, " times the smaller's elements (",
                    one.numel(), " of ", one.scalar_type(), "), but has ", all.numel(), " of ",
                    all.scalar_type()));
  }
}

at::Tensor landing(const at::Tensor& tensor) {
  return tensor.is_contiguous()
             ? tensor
             : at::empty(tensor.sizes(),
                         tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

void deliver(const at::Tensor& from, const at::Tensor& to) {
  if (!from.is_same(to)) to.copy_(from);
}

at::Tensor pack(const Tensors& tensors) {
  if (tensors.size() == 1) return tensors[0].contiguous();
  Tensors flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

at::Tensor flat_like(const Tensors& tensors) {
  std::int64_t numel = 0;
  for (const at::Tensor& tensor : tensors) numel += tensor.numel();
  return at::empty({numel}, tensors.at(0).options());
}

void unpack(const at::Tensor& flat, const Tensors& tensors) {
  std::int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(flat.narrow(0, start, tensor.numel()).view(tensor.sizes()));
    start += tensor.numel();
  }
}

}  // namespace ddl_torch
