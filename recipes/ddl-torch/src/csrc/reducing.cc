// The operations that reduce.
#include <algorithm>

#include "backend.h"
#include "error.h"
#include "reduction.h"
#include "sparse.h"

namespace ddl_torch {

using c10d::OpType;

DdlBackend::Body DdlBackend::allreduce_body(const char* what, const at::Tensor& tensor,
                                            const c10d::ReduceOp& op) {
  if (tensor.defined() && tensor.layout() != at::kStrided) {
    check_sparse(what, tensor, op);
    return [what, comm = comm_, tensor, is_average = op.op_ == c10d::ReduceOp::AVG] {
      sparse_allreduce(what, comm, tensor, is_average);
    };
  }
  check_tensor(what, tensor);
  return [comm = comm_, tensor, how = Reduction(what, tensor, op)] {
    const at::Tensor staged = how.stage(tensor);
    how.allreduce(comm, staged, staged);
    how.restore(staged, tensor);
  };
}

DdlBackend::WorkPtr DdlBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  check_one("all_reduce", tensors);
  return run(OpType::ALLREDUCE, "ddl:all_reduce", options.timeout, tensors,
             allreduce_body("all_reduce", tensors[0], options.reduceOp));
}

DdlBackend::WorkPtr DdlBackend::allreduce_sparse(Tensors& tensors,
                                                 const c10d::AllreduceOptions& options) {
  return allreduce(tensors, options);
}

DdlBackend::WorkPtr DdlBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  std::vector<Body> bodies;
  for (const at::Tensor& tensor : tensors) {
    bodies.push_back(allreduce_body("all_reduce_coalesced", tensor, options.reduceOp));
  }
  return run_all(OpType::ALLREDUCE_COALESCED, "ddl:all_reduce_coalesced", options.timeout, tensors,
                 std::move(bodies));
}

DdlBackend::WorkPtr DdlBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only("reduce", tensors);
  const bool is_root = options.rootRank == getRank();
  Reduction how("reduce", tensor, options.reduceOp);
  return run(OpType::REDUCE, "ddl:reduce", options.timeout, tensors, [=, comm = comm_] {
    const at::Tensor staged = how.stage(tensor);
    const at::Tensor result = is_root ? staged : at::empty_like(staged);
    how.allreduce(comm, staged, result);
    if (is_root) how.restore(staged, tensor);
  });
}

namespace {

void reduce_scatter_now(ddl_comm_t comm, const Reduction& how, const at::Tensor& output,
                        const at::Tensor& input) {
  const at::Tensor from = how.stage(input);
  const at::Tensor to = how.stage_empty(output);
  how.reduce_scatter(comm, from, to);
  how.restore(to, output);
}

// The same for parts of unequal sizes: sums them all, and keeps this rank's.
void reduce_parts(ddl_comm_t comm, const Reduction& how, const at::Tensor& output,
                  const Tensors& parts, int rank) {
  const at::Tensor all = pack(parts);
  const at::Tensor staged = how.stage(all);
  how.allreduce(comm, staged, staged);
  std::int64_t start = 0;
  for (int before = 0; before < rank; ++before) start += parts[before].numel();
  const std::int64_t width = staged.numel() / all.numel();  // a complex number is staged as two
  how.restore(staged.view({-1}).narrow(0, start * width, output.numel() * width), output);
}

}  // namespace

DdlBackend::Body DdlBackend::reduce_scatter_body(const char* what, const at::Tensor& output,
                                                 const at::Tensor& input,
                                                 const c10d::ReduceOp& op) {
  check_blocks(what, output, input, getSize());
  return [comm = comm_, output, input, how = Reduction(what, input, op)] {
    reduce_scatter_now(comm, how, output, input);
  };
}

DdlBackend::WorkPtr DdlBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                               const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only("reduce_scatter", outputs);
  if (inputs.size() != 1 || inputs[0].size() != static_cast<std::size_t>(getSize())) {
    refuse(c10::str("reduce_scatter: needs one input tensor per rank: ", getSize()));
  }
  check_parts("reduce_scatter", output, inputs[0], getRank());
  const Reduction how("reduce_scatter", output, options.reduceOp);
  return run(OpType::REDUCE_SCATTER, "ddl:reduce_scatter", options.timeout, outputs,
             [=, comm = comm_, list = inputs[0], rank = getRank()] {
               const bool are_alike = std::all_of(list.begin(), list.end(), [&](const auto& part) {
                 return part.numel() == output.numel();
               });
               if (are_alike) {
                 reduce_scatter_now(comm, how, output, pack(list));
               } else {
                 reduce_parts(comm, how, output, list, rank);
               }
             });
}

DdlBackend::WorkPtr DdlBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& options) {
  return run(OpType::_REDUCE_SCATTER_BASE, "ddl:reduce_scatter_tensor", options.timeout,
             Tensors{output},
             reduce_scatter_body("reduce_scatter_tensor", output, input, options.reduceOp));
}

DdlBackend::WorkPtr DdlBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  if (outputs.size() != inputs.size()) refuse("reduce_scatter_tensor: as many outputs as inputs");
  std::vector<Body> bodies;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    bodies.push_back(
        reduce_scatter_body("reduce_scatter_tensor", outputs[i], inputs[i], options.reduceOp));
  }
#if DDL_TORCH_AT_LEAST_2_13
  constexpr auto type = OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#else
  constexpr auto type = OpType::COALESCED;
#endif
  return run_all(type, "ddl:reduce_scatter_tensor_coalesced", options.timeout, outputs,
                 std::move(bodies));
}

}  // namespace ddl_torch
