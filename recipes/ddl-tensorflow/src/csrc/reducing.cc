// The operations that reduce.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernel.h"
#include "status.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace ddl_tensorflow {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::shape_inference::InferenceContext;

// The memory that ddl reduces for a tensor: its own, or a copy in a wider type.
class Staged {
 public:
  Staged(const Tensor& from, Tensor* to) : from_(from), to_(to) {
    if (from.dtype() == tensorflow::DT_INT8) widen<std::int8_t>();
    if (from.dtype() == tensorflow::DT_UINT8) widen<std::uint8_t>();
  }

  const void* send() const { return is_wide() ? wide_.data() : data_of(from_); }
  void* recv() { return is_wide() ? wide_.data() : data_of(to_); }

  // After the reduction, whose first elements are the result.
  void restore() {
    if (from_.dtype() == tensorflow::DT_INT8) narrow<std::int8_t>();
    if (from_.dtype() == tensorflow::DT_UINT8) narrow<std::uint8_t>();
  }

 private:
  bool is_wide() const { return is_widened(from_.dtype()); }

  template <class Type>
  void widen() {
    const auto values = from_.flat<Type>();
    wide_.assign(values.data(), values.data() + values.size());
  }

  // Modulo 2^8, as sums and products of the narrow type wrap around.
  template <class Type>
  void narrow() {
    auto values = to_->flat<Type>();
    for (std::int64_t i = 0; i < values.size(); ++i) values(i) = static_cast<Type>(wide_[i]);
  }

  Tensor from_;
  Tensor* to_;
  std::vector<std::int32_t> wide_;
};

class Allreduce : public KernelOperation {
 public:
  using KernelOperation::KernelOperation;

  void add(const Tensor& from, Tensor* to, DDL_Op op) {
    staged_.push_back(std::make_unique<Staged>(from, to));
    reductions_.push_back({staged_.back()->send(), staged_.back()->recv(),
                           static_cast<std::size_t>(from.NumElements()), to_ddl(from.dtype()), op});
  }

  std::vector<Reduction> reductions() override { return reductions_; }

  absl::Status run(ddl_comm_t, const std::vector<std::int64_t>&) override {
    for (const auto& staged : staged_) staged->restore();
    // Without these references, the next user of the results may compute in place, too.
    staged_.clear();
    return absl::OkStatus();
  }

 private:
  std::vector<std::unique_ptr<Staged>> staged_;
  std::vector<Reduction> reductions_;
};

class AllreduceKernel : public Kernel {
 public:
  explicit AllreduceKernel(OpKernelConstruction* construction) : Kernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("op", &op_));
    OP_REQUIRES_OK(construction, construction->GetAttr("labels", &labels_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    auto operation = std::make_unique<Allreduce>(name_in(*context), context, done);
    operation->add_line(absl::StrCat("allreduce (", op_, ")"));
    const auto num_labels = static_cast<int>(labels_.size());
    for (int i = 0; i < context->num_inputs(); ++i) {
      // A copy of the input, even one that lasts no longer than this, would keep its memory from
      // becoming the output's.
      const tensorflow::TensorShape shape = context->input(i).shape();
      Tensor* output = nullptr;
      OP_REQUIRES_OK_ASYNC(context,
                           context->forward_input_or_allocate_output({i}, i, shape, &output), done);
      const Tensor& input = context->input(i);
      operation->add_line(describe(input),
                          i < num_labels ? labels_[i] : absl::StrCat("tensor ", i));
      operation->add(input, output, to_ddl(op_));
    }
    BackgroundThread::instance().give(std::move(operation));
  }

 private:
  std::string op_;
  std::vector<std::string> labels_;
};

class ReduceScatter : public KernelOperation {
 public:
  ReduceScatter(std::string name, OpKernelContext* context, Done done, DDL_Op op)
      : KernelOperation(std::move(name), context, std::move(done)), op_(op) {}

  absl::Status run(ddl_comm_t comm, const std::vector<std::int64_t>& rows) override {
    const Tensor input = context()->input(0);
    const auto size = static_cast<std::int64_t>(rows.size());
    if (input.dim_size(0) % size != 0) {
      return absl::InvalidArgumentError(absl::StrCat("of shape ", input.shape().DebugString(),
                                                     "; its first dimension must be a multiple of ",
                                                     "the ", size, " ranks"));
    }
    tensorflow::TensorShape shape = input.shape();
    shape.set_dim(0, shape.dim_size(0) / size);
    Tensor* output = nullptr;
    absl::Status status = context()->allocate_output(0, shape, &output);
    if (!status.ok()) return status;
    Staged staged(input, output);
    std::vector<std::int32_t> wide;
    void* recv = staged.recv();
    if (is_widened(input.dtype())) {
      wide.resize(output->NumElements());
      recv = wide.data();
    }
    status = to_status(ddl_comm_reduce_scatter(comm, staged.send(), recv, output->NumElements(),
                                               to_ddl(input.dtype()), op_),
                       "reduce_scatter");
    if (status.ok() && !wide.empty()) {
      std::copy(wide.begin(), wide.end(), static_cast<std::int32_t*>(staged.recv()));
      staged.restore();
    }
    return status;
  }

 private:
  DDL_Op op_;
};

class ReduceScatterKernel : public Kernel {
 public:
  explicit ReduceScatterKernel(OpKernelConstruction* construction) : Kernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("op", &op_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const Tensor& input = context->input(0);
    OP_REQUIRES_ASYNC(context, input.dims() > 0,
                      absl::InvalidArgumentError("reduce_scatter: a scalar has no rows to share"),
                      done);
    auto operation = std::make_unique<ReduceScatter>(name_in(*context), context, done, to_ddl(op_));
    operation->add_line(absl::StrCat("reduce_scatter (", op_, ")"));
    operation->add_line(describe(input));
    BackgroundThread::instance().give(std::move(operation));
  }

 private:
  std::string op_;
};

absl::Status same_shapes(InferenceContext* context) {
  for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("DdlAllreduce")
    .Attr("T: list({half, bfloat16, float, double, int32, int64, int8, uint8})")
    .Attr("op: {'sum', 'average', 'min', 'max', 'prod'}")
    .Attr("tensor_name: string = ''")
    .Attr("labels: list(string) = []")
    .Input("tensors: T")
    .Output("results: T")
    .SetIsStateful()
    .SetShapeFn(same_shapes);

REGISTER_OP("DdlReduceScatter")
    .Attr("T: {half, bfloat16, float, double, int32, int64, int8, uint8}")
    .Attr("op: {'sum', 'average', 'min', 'max', 'prod'}")
    .Attr("tensor_name: string = ''")
    .Input("tensor: T")
    .Output("result: T")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnknownShape);

REGISTER_KERNEL_BUILDER(Name("DdlAllreduce").Device(tensorflow::DEVICE_CPU), AllreduceKernel);
REGISTER_KERNEL_BUILDER(Name("DdlReduceScatter").Device(tensorflow::DEVICE_CPU),
                        ReduceScatterKernel);

}  // namespace ddl_tensorflow
