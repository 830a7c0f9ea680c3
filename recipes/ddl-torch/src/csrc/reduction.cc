#include "reduction.h"

#include "error.h"

namespace ddl_torch {
namespace {

DDL_Op translate(const char* what, const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return DDL_OP_SUM;
    case c10d::ReduceOp::AVG:
      return DDL_OP_AVERAGE;
    case c10d::ReduceOp::PRODUCT:
      return DDL_OP_PRODUCT;
    case c10d::ReduceOp::MIN:
      return DDL_OP_MIN;
    case c10d::ReduceOp::MAX:
      return DDL_OP_MAX;
    default:
      refuse(c10::str(what, ": ReduceOp.BAND, BOR, BXOR and PREMUL_SUM are not supported; ",
                      "use SUM, AVG, PRODUCT, MIN or MAX"));
  }
}

}  // namespace

Reduction::Reduction(const char* what, const at::Tensor& tensor, const c10d::ReduceOp& reduce_op)
    : type(tensor.scalar_type()), op(translate(what, reduce_op)), is_complex(tensor.is_complex()) {
  if (is_complex) {
    if (!c10d::isComplexViewAsRealAllowed(reduce_op)) {
      refuse(c10::str(what, ": complex numbers can be summed and averaged only"));
    }
    type = c10::toRealValueType(type);
  }
  const at::ScalarType given = type;
  if (type == at::kBool) {  // as NCCL does: any for SUM and MAX, all for PRODUCT and MIN
    if (op == DDL_OP_SUM) op = DDL_OP_MAX;
    if (op == DDL_OP_PRODUCT) op = DDL_OP_MIN;
  }
  // Narrowing afterwards gives what sums and products of the narrow type wrap around to.
  if (type == at::kBool || type == at::kByte || type == at::kChar || type == at::kShort) {
    type = at::kInt;
  }
  switch (type) {
    case at::kFloat:
      ddl_type = DDL_TYPE_FLOAT;
      break;
    case at::kDouble:
      ddl_type = DDL_TYPE_DOUBLE;
      break;
    case at::kHalf:
      ddl_type = DDL_TYPE_HALF;
      break;
    case at::kBFloat16:
      ddl_type = DDL_TYPE_BFLOAT16;
      break;
    case at::kInt:
      ddl_type = DDL_TYPE_INT32;
      break;
    case at::kLong:
      ddl_type = DDL_TYPE_INT64;
      break;
    default:
      refuse(c10::str(what, ": tensors of type ", given, " cannot be reduced"));
  }
  if (op == DDL_OP_AVERAGE && !at::isFloatingType(type)) {
    refuse(c10::str(what, ": the average of integers (", given,
                    ") is not one; sum and divide, or use a floating-point type"));
  }
}

at::Tensor Reduction::stage(const at::Tensor& tensor) const {
  const at::Tensor real = is_complex ? at::view_as_real(tensor) : tensor;
  return real.to(type).contiguous();
}

at::Tensor Reduction::stage_empty(const at::Tensor& tensor) const {
  const bool is_usable = !is_complex && tensor.scalar_type() == type && tensor.is_contiguous();
  if (is_usable) return tensor;
  return at::empty({tensor.numel() * (is_complex ? 2 : 1)}, tensor.options().dtype(type));
}

void Reduction::restore(const at::Tensor& staged, const at::Tensor& tensor) const {
  if (staged.is_same(tensor)) return;
  if (is_complex) {
    tensor.copy_(at::view_as_complex(staged.view({-1, 2})).view(tensor.sizes()));
  } else {
    tensor.copy_(staged.view(tensor.sizes()));
  }
}

}  // namespace ddl_torch
