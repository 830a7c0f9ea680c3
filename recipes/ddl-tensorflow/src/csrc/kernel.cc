#include "kernel.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddl_tensorflow {

using tensorflow::DataType;
using tensorflow::Tensor;

DDL_Type to_ddl(DataType type) {
  switch (type) {
    case tensorflow::DT_FLOAT:
      return DDL_TYPE_FLOAT;
    case tensorflow::DT_DOUBLE:
      return DDL_TYPE_DOUBLE;
    case tensorflow::DT_HALF:
      return DDL_TYPE_HALF;
    case tensorflow::DT_BFLOAT16:
      return DDL_TYPE_BFLOAT16;
    case tensorflow::DT_INT8:
    case tensorflow::DT_UINT8:
    case tensorflow::DT_INT32:
      return DDL_TYPE_INT32;
    case tensorflow::DT_INT64:
      return DDL_TYPE_INT64;
    default:  // no operation is registered for others
      LOG(FATAL) << "ddl has no type for " << tensorflow::DataTypeString(type);
  }
}

DDL_Op to_ddl(const std::string& op) {
  if (op == "prod") return DDL_OP_PRODUCT;
  if (op == "min") return DDL_OP_MIN;
  if (op == "max") return DDL_OP_MAX;
  return op == "average" ? DDL_OP_AVERAGE : DDL_OP_SUM;
}

bool is_widened(DataType type) {
  return type == tensorflow::DT_INT8 || type == tensorflow::DT_UINT8;
}

Kernel::Kernel(tensorflow::OpKernelConstruction* construction) : AsyncOpKernel(construction) {
  OP_REQUIRES_OK(construction, construction->GetAttr("tensor_name", &tensor_name_));
  if (tensor_name_.empty()) tensor_name_ = name();
}

std::string Kernel::name_in(const tensorflow::OpKernelContext& context) const {
  const std::int64_t iteration = context.frame_iter().iter_id;
  return iteration > 0 ? absl::StrCat(tensor_name_, "#", iteration) : tensor_name_;
}

std::string describe(const Tensor& tensor, bool any_rows) {
  std::vector<std::string> sizes;
  for (int i = 0; i < tensor.dims(); ++i) {
    sizes.push_back(any_rows && i == 0 ? "?" : absl::StrCat(tensor.dim_size(i)));
  }
  const std::string type = tensorflow::DataTypeString(tensor.dtype());
  return absl::StrCat(type, "[", absl::StrJoin(sizes, ","), "]");
}

std::size_t bytes_of(const Tensor& tensor) { return tensor.tensor_data().size(); }

void* data_of(Tensor* tensor) { return const_cast<char*>(tensor->tensor_data().data()); }

const void* data_of(const Tensor& tensor) { return tensor.tensor_data().data(); }

}  // namespace ddl_tensorflow
