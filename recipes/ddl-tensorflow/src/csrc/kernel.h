// The common part of the kernels.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "background_thread.h"
#include "operation.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace ddl_tensorflow {

// TensorFlow's types and reductions in ddl's terms. Types that ddl does not reduce are refused by
// the operations' attributes; int8 and uint8 are widened to int32.
DDL_Type to_ddl(tensorflow::DataType type);
DDL_Op to_ddl(const std::string& op);
bool is_widened(tensorflow::DataType type);

// An operation of a kernel's call. Outputs may be allocated on the background thread: the context
// lives until `done`.
class KernelOperation : public Operation {
 public:
  using Done = tensorflow::AsyncOpKernel::DoneCallback;

  KernelOperation(std::string name, tensorflow::OpKernelContext* context, Done done)
      : Operation(std::move(name)), context_(context), done_(std::move(done)) {}

  const std::vector<std::string>& lines() const override { return lines_; }
  const std::vector<std::string>& labels() const override { return labels_; }
  void add_line(std::string line, std::string label = "") {
    lines_.push_back(std::move(line));
    labels_.push_back(std::move(label));
  }

  void finish(const absl::Status& status) override {
    if (!status.ok()) context_->SetStatus(status);
    done_();
  }

 protected:
  tensorflow::OpKernelContext* context() const { return context_; }

 private:
  tensorflow::OpKernelContext* context_;
  Done done_;
  std::vector<std::string> lines_;
  std::vector<std::string> labels_;
};

// The base of all kernels. Ranks match calls by the attribute `tensor_name`, or the node's name. In
// a loop, whose iterations may overlap, the iteration's number is part of the name.
class Kernel : public tensorflow::AsyncOpKernel {
 public:
  explicit Kernel(tensorflow::OpKernelConstruction* construction);

 protected:
  std::string name_in(const tensorflow::OpKernelContext& context) const;

 private:
  std::string tensor_name_;
};

// "float32[3,4]"; with `any_rows`, "float32[?,4]".
std::string describe(const tensorflow::Tensor& tensor, bool any_rows = false);

std::size_t bytes_of(const tensorflow::Tensor& tensor);
void* data_of(tensorflow::Tensor* tensor);
const void* data_of(const tensorflow::Tensor& tensor);

}  // namespace ddl_tensorflow
