// The operations that move data as it is.
#include <algorithm>
#include <numeric>

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
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;

using Sizes = std::vector<std::size_t>;

Sizes offsets_of(const Sizes& sizes) {
  Sizes offsets(sizes.size(), 0);
  std::partial_sum(sizes.begin(), sizes.end() - 1, offsets.begin() + 1);
  return offsets;
}

// Bytes of one row.
std::size_t row_bytes(const Tensor& tensor) {
  std::size_t bytes = tensorflow::DataTypeSize(tensor.dtype());
  for (int i = 1; i < tensor.dims(); ++i) bytes *= tensor.dim_size(i);
  return bytes;
}

Sizes in_bytes(const std::vector<std::int64_t>& rows, std::size_t of_one) {
  Sizes sizes;
  for (const std::int64_t number : rows) sizes.push_back(number * of_one);
  return sizes;
}

class Broadcast : public KernelOperation {
 public:
  Broadcast(std::string name, OpKernelContext* context, Done done, int root)
      : KernelOperation(std::move(name), context, std::move(done)), root_(root) {}

  absl::Status run(ddl_comm_t comm, const std::vector<std::int64_t>& rows) override {
    if (root_ < 0 || root_ >= static_cast<int>(rows.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("root ", root_, " is no rank from 0 to ", rows.size() - 1));
    }
    for (int i = 0; i < context()->num_inputs(); ++i) {
      const Tensor input = context()->input(i);
      Tensor* output = nullptr;
      absl::Status status = context()->allocate_output(i, input.shape(), &output);
      if (!status.ok()) return status;
      std::copy_n(static_cast<const char*>(data_of(input)), bytes_of(input),
                  static_cast<char*>(data_of(output)));
      status = to_status(ddl_comm_broadcast(comm, data_of(output), bytes_of(*output), root_),
                         "broadcast");
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  int root_;
};

class BroadcastKernel : public Kernel {
 public:
  explicit BroadcastKernel(OpKernelConstruction* construction) : Kernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("root", &root_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    auto operation = std::make_unique<Broadcast>(name_in(*context), context, done, root_);
    operation->add_line(absl::StrCat("broadcast (root ", root_, ")"));
    for (int i = 0; i < context->num_inputs(); ++i) {
      operation->add_line(absl::StrCat("tensor ", i, ": ", describe(context->input(i))));
    }
    BackgroundThread::instance().give(std::move(operation));
  }

 private:
  int root_ = 0;
};

class Allgather : public KernelOperation {
 public:
  using KernelOperation::KernelOperation;

  std::int64_t rows() const override { return context()->input(0).dim_size(0); }

  absl::Status run(ddl_comm_t comm, const std::vector<std::int64_t>& rows) override {
    const Tensor input = context()->input(0);
    const auto size = static_cast<std::int64_t>(rows.size());
    TensorShape shape = input.shape();
    shape.set_dim(0, std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
    Tensor* output = nullptr;
    Tensor* counts = nullptr;
    absl::Status status = context()->allocate_output(0, shape, &output);
    if (status.ok()) status = context()->allocate_output(1, TensorShape({size}), &counts);
    if (!status.ok()) return status;
    std::copy(rows.begin(), rows.end(), counts->flat<std::int64_t>().data());
    const bool is_even = std::all_of(rows.begin(), rows.end(),
                                     [&](std::int64_t number) { return number == rows[0]; });
    if (is_even) {
      return to_status(ddl_comm_allgather(comm, data_of(input), data_of(output), bytes_of(input)),
                       "allgather");
    }
    const Sizes send(size, bytes_of(input));
    const Sizes from_the_start(size, 0);
    const Sizes recv = in_bytes(rows, row_bytes(input));
    return to_status(ddl_comm_alltoallv(comm, data_of(input), send.data(), from_the_start.data(),
                                        data_of(output), recv.data(), offsets_of(recv).data()),
                     "allgather");
  }
};

class AllgatherKernel : public Kernel {
 public:
  explicit AllgatherKernel(OpKernelConstruction* construction) : Kernel(construction) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const Tensor& input = context->input(0);
    OP_REQUIRES_ASYNC(context, input.dims() > 0,
                      absl::InvalidArgumentError(
                          "allgather: a scalar has no rows; give it a dimension (tf.reshape)"),
                      done);
    auto operation = std::make_unique<Allgather>(name_in(*context), context, done);
    operation->add_line("allgather");
    operation->add_line(describe(input, /*any_rows=*/true));
    BackgroundThread::instance().give(std::move(operation));
  }
};

class Alltoall : public KernelOperation {
 public:
  using KernelOperation::KernelOperation;

  absl::Status run(ddl_comm_t comm, const std::vector<std::int64_t>& rows) override {
    const Tensor input = context()->input(0);
    const auto size = static_cast<std::int64_t>(rows.size());
    std::vector<std::int64_t> send;
    absl::Status status = read_splits(input, size, send);
    // A rank that refuses would leave the others waiting: they are told by a negative number.
    if (!status.ok()) send.assign(size, -1);
    std::vector<std::int64_t> recv(size);
    const absl::Status told = to_status(
        ddl_comm_alltoall(comm, send.data(), recv.data(), sizeof(std::int64_t)), "alltoall");
    if (!status.ok() || !told.ok()) return status.ok() ? told : status;
    Tensor* output = nullptr;
    Tensor* counts = nullptr;
    for (std::int64_t rank = 0; rank < size; ++rank) {
      if (recv[rank] < 0) {
        return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " gave wrong splits"));
      }
    }
    TensorShape shape = input.shape();
    shape.set_dim(0, std::accumulate(recv.begin(), recv.end(), std::int64_t{0}));
    status = context()->allocate_output(0, shape, &output);
    if (status.ok()) status = context()->allocate_output(1, TensorShape({size}), &counts);
    if (!status.ok()) return status;
    std::copy(recv.begin(), recv.end(), counts->flat<std::int64_t>().data());
    const Sizes from = in_bytes(send, row_bytes(input));
    const Sizes to = in_bytes(recv, row_bytes(input));
    return to_status(ddl_comm_alltoallv(comm, data_of(input), from.data(), offsets_of(from).data(),
                                        data_of(output), to.data(), offsets_of(to).data()),
                     "alltoall");
  }

 private:
  // The rows for each rank; even shares when there are no splits.
  absl::Status read_splits(const Tensor& input, std::int64_t size,
                           std::vector<std::int64_t>& splits) const {
    const auto given = context()->input(1).flat<std::int64_t>();
    const std::int64_t all = input.dim_size(0);
    if (given.size() == 0) {
      splits.assign(size, all / size);
      if (all % size == 0) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(all, " rows are no multiple of the ", size,
                                                     " ranks; give splits, the rows for each"));
    }
    splits.assign(given.data(), given.data() + given.size());
    const bool is_wrong =
        std::any_of(splits.begin(), splits.end(), [](std::int64_t number) { return number < 0; });
    const std::int64_t sum = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
    if (!is_wrong && given.size() == size && sum == all) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "splits must be ", size, " numbers from 0 on, one per rank, with the sum ", all));
  }
};

class AlltoallKernel : public Kernel {
 public:
  explicit AlltoallKernel(OpKernelConstruction* construction) : Kernel(construction) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const Tensor& input = context->input(0);
    OP_REQUIRES_ASYNC(context, input.dims() > 0,
                      absl::InvalidArgumentError("alltoall: a scalar has no rows to share"), done);
    auto operation = std::make_unique<Alltoall>(name_in(*context), context, done);
    operation->add_line("alltoall");
    operation->add_line(describe(input, /*any_rows=*/true));
    BackgroundThread::instance().give(std::move(operation));
  }
};

absl::Status same_shapes(InferenceContext* context) {
  for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
  return absl::OkStatus();
}

// The same but for the number of rows; and a number for each rank.
absl::Status other_rows(InferenceContext* context) {
  tensorflow::shape_inference::ShapeHandle shape = context->input(0);
  if (context->RankKnown(shape) && context->Rank(shape) > 0) {
    const absl::Status status = context->ReplaceDim(shape, 0, context->UnknownDim(), &shape);
    if (!status.ok()) return status;
  }
  context->set_output(0, shape);
  context->set_output(1, context->Vector(context->UnknownDim()));
  return absl::OkStatus();
}

}  // namespace

#define DDL_MOVABLE                                                                           \
  "half, bfloat16, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64, " \
  "bool, complex64, complex128"

REGISTER_OP("DdlBroadcast")
    .Attr("T: list({" DDL_MOVABLE "})")
    .Attr("root: int")
    .Attr("tensor_name: string = ''")
    .Input("tensors: T")
    .Output("results: T")
    .SetIsStateful()
    .SetShapeFn(same_shapes);

REGISTER_OP("DdlAllgather")
    .Attr("T: {" DDL_MOVABLE "}")
    .Attr("tensor_name: string = ''")
    .Input("tensor: T")
    .Output("result: T")
    .Output("rows: int64")
    .SetIsStateful()
    .SetShapeFn(other_rows);

REGISTER_OP("DdlAlltoall")
    .Attr("T: {" DDL_MOVABLE "}")
    .Attr("tensor_name: string = ''")
    .Input("tensor: T")
    .Input("splits: int64")
    .Output("result: T")
    .Output("rows: int64")
    .SetIsStateful()
    .SetShapeFn(other_rows);

REGISTER_KERNEL_BUILDER(Name("DdlBroadcast").Device(tensorflow::DEVICE_CPU), BroadcastKernel);
REGISTER_KERNEL_BUILDER(Name("DdlAllgather").Device(tensorflow::DEVICE_CPU), AllgatherKernel);
REGISTER_KERNEL_BUILDER(Name("DdlAlltoall").Device(tensorflow::DEVICE_CPU), AlltoallKernel);

}  // namespace ddl_tensorflow
