#include "reduction.h"

#include "api.h"
#include "error.h"

namespace ddl_torch {
namespace {

std::optional<Bitwise> bitwise_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::BAND:
      return Bitwise::kAnd;
    case c10d::ReduceOp::BOR:
      return Bitwise::kOr;
    case c10d::ReduceOp::BXOR:
      return Bitwise::kXor;
    default:
      return std::nullopt;
  }
}

DDL_Op translate(const char* what, const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
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
      refuse(c10::str(what, ": there is no reduction of number ", static_cast<int>(op.op_),
                      "; use one of torch.distributed.ReduceOp"));
  }
}

double factor_of(const char* what, const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return 1;
  const auto* const given = dynamic_cast<const PreMulSum*>(op.supplement_.get());
  if (given == nullptr) {
    refuse(c10::str(what, ": PREMUL_SUM without its factor; ",
                    "make it by torch.distributed._make_nccl_premul_sum(factor)"));
  }
  return given->tensor_factor.defined() ? given->tensor_factor.item<double>()
                                        : given->double_factor;
}

// The type in which ddl reduces `type`. Narrowing afterwards gives the same as sums and products of
// the narrow type, which wrap around.
at::ScalarType widened(at::ScalarType type) {
  const bool is_small =
      type == at::kBool || type == at::kByte || type == at::kChar || type == at::kShort;
  return is_small ? at::kInt : type;
}

DDL_Type ddl_type_of(const char* what, at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DDL_TYPE_FLOAT;
    case at::kDouble:
      return DDL_TYPE_DOUBLE;
    case at::kHalf:
      return DDL_TYPE_HALF;
    case at::kBFloat16:
      return DDL_TYPE_BFLOAT16;
    case at::kInt:
      return DDL_TYPE_INT32;
    case at::kLong:
      return DDL_TYPE_INT64;
    default:
      refuse(c10::str(what, ": tensors of type ", type, " cannot be reduced"));
  }
}

}  // namespace

Reduction::Reduction(const char* what, const at::Tensor& tensor, const c10d::ReduceOp& reduce_op)
    : type_(tensor.scalar_type()),
      bitwise_(bitwise_of(reduce_op)),
      is_complex_(tensor.is_complex()) {
  const at::ScalarType given = type_;
  if (bitwise_) {
    if (!at::isIntegralType(given, /*includeBool=*/true)) {
      refuse(c10::str(what, ": BAND, BOR and BXOR take integers, not ", given));
    }
    return;
  }
  op_ = translate(what, reduce_op);
  if (is_complex_) {
    if (op_ != DDL_OP_SUM && op_ != DDL_OP_AVERAGE) {
      refuse(c10::str(what, ": complex numbers can be summed and averaged only"));
    }
    type_ = c10::toRealValueType(type_);
  }
  const bool needs_floats = op_ == DDL_OP_AVERAGE || reduce_op.op_ == c10d::ReduceOp::PREMUL_SUM;
  if (needs_floats && at::isIntegralType(type_, /*includeBool=*/true)) {
    refuse(c10::str(what, ": the average of integers (", given,
                    ") is not one, nor is a multiple (PREMUL_SUM); sum and divide, ",
                    "or use a floating-point type"));
  }
  if (given == at::kBool) {  // as NCCL does: any for SUM and MAX, all for PRODUCT and MIN
    if (op_ == DDL_OP_SUM) op_ = DDL_OP_MAX;
    if (op_ == DDL_OP_PRODUCT) op_ = DDL_OP_MIN;
  }
  type_ = widened(type_);
  ddl_type_ = ddl_type_of(what, type_);
  factor_ = factor_of(what, reduce_op);
}

at::Tensor Reduction::stage(const at::Tensor& tensor) const {
  const at::Tensor real = is_complex_ ? at::view_as_real(tensor) : tensor;
  const at::Tensor staged = real.to(type_).contiguous();
  return factor_ == 1 ? staged : staged.mul(factor_);
}

at::Tensor Reduction::stage_empty(const at::Tensor& tensor) const {
  const bool is_usable = !is_complex_ && tensor.scalar_type() == type_ && tensor.is_contiguous();
  if (is_usable) return tensor;
  return at::empty({tensor.numel() * (is_complex_ ? 2 : 1)}, tensor.options().dtype(type_));
}

void Reduction::restore(const at::Tensor& staged, const at::Tensor& tensor) const {
  if (staged.is_same(tensor)) return;
  if (is_complex_) {
    tensor.copy_(at::view_as_complex(staged.view({-1, 2})).view(tensor.sizes()));
  } else {
    tensor.copy_(staged.view(tensor.sizes()));
  }
}

void Reduction::allreduce(ddl_comm_t comm, const at::Tensor& from, const at::Tensor& to) const {
  if (bitwise_) return bitwise_allreduce(comm, *bitwise_, from, to);
  check(
      ddl_comm_allreduce(comm, from.const_data_ptr(), to.data_ptr(), from.numel(), ddl_type_, op_));
}

void Reduction::reduce_scatter(ddl_comm_t comm, const at::Tensor& from,
                               const at::Tensor& to) const {
  if (bitwise_) return bitwise_reduce_scatter(comm, *bitwise_, from, to);
  check(ddl_comm_reduce_scatter(comm, from.const_data_ptr(), to.data_ptr(), to.numel(), ddl_type_,
                                op_));
}

}  // namespace ddl_torch
