#include "elements.h"

#include <complex>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "error.h"

namespace ddl_jax {
namespace {

std::optional<DDL_Op> op_of(MPI_Op op) {
  if (op == MPI_SUM) return DDL_OP_SUM;
  if (op == MPI_PROD) return DDL_OP_PRODUCT;
  if (op == MPI_MIN) return DDL_OP_MIN;
  if (op == MPI_MAX) return DDL_OP_MAX;
  return std::nullopt;
}

struct Call {
  const void* send;
  void* recv;
  std::size_t n_in;
  std::size_t n_out;
  DDL_Op op;
  const Carry& carry;
};

// By way of elements of another type: `there` and `back` turn one into the other.
template <class Own, class Wide, class There, class Back>
int by_way_of(const Call& call, DDL_Type type, There there, Back back) {
  const std::unique_ptr<Wide[]> in(new Wide[call.n_in]);
  const std::unique_ptr<Wide[]> out(new Wide[call.n_out]);
  const auto* const send = static_cast<const Own*>(call.send);
  auto* const recv = static_cast<Own*>(call.recv);
  for (std::size_t i = 0; i < call.n_in; ++i) in[i] = there(send[i]);
  const DDL_Result result = call.carry(in.get(), out.get(), call.n_out, type, call.op);
  if (result != DDL_SUCCESS) return result_of(result);
  for (std::size_t i = 0; i < call.n_out; ++i) recv[i] = back(out[i]);
  return MPI_SUCCESS;
}

template <class Own>
int widened(const Call& call) {
  return by_way_of<Own, std::int32_t>(
      call, DDL_TYPE_INT32, [](Own x) { return static_cast<std::int32_t>(x); },
      [](std::int32_t x) { return static_cast<Own>(x); });
}

int as_bool(const Call& call) {
  return by_way_of<std::uint8_t, std::int32_t>(
      call, DDL_TYPE_INT32, [](std::uint8_t x) { return static_cast<std::int32_t>(x != 0); },
      [](std::int32_t x) { return static_cast<std::uint8_t>(x != 0); });
}

// Sums and products of unsigned numbers have the bits of the signed ones; their order has not,
// unless the first bit is turned over.
template <class Own, class Signed>
int as_signed(const Call& call, DDL_Type type) {
  if (call.op == DDL_OP_SUM || call.op == DDL_OP_PRODUCT) {
    return result_of(call.carry(call.send, call.recv, call.n_out, type, call.op));
  }
  constexpr Own kFirst = Own{1} << (8 * sizeof(Own) - 1);
  return by_way_of<Own, Signed>(
      call, type, [](Own x) { return static_cast<Signed>(x ^ kFirst); },
      [](Signed x) { return static_cast<Own>(static_cast<Own>(x) ^ kFirst); });
}

int direct(const Call& call, DDL_Type type, std::size_t times = 1) {
  return result_of(call.carry(call.send, call.recv, call.n_out * times, type, call.op));
}

template <class T>
void multiply_as(void* product, const void* factor, std::size_t count) {
  auto* const to = static_cast<std::complex<T>*>(product);
  const auto* const by = static_cast<const std::complex<T>*>(factor);
  for (std::size_t i = 0; i < count; ++i) to[i] *= by[i];
}

bool is_complex64(MPI_Datatype type) {
  return type == MPI_C_COMPLEX || type == MPI_C_FLOAT_COMPLEX || type == MPI_COMPLEX;
}

bool is_complex128(MPI_Datatype type) {
  return type == MPI_C_DOUBLE_COMPLEX || type == MPI_DOUBLE_COMPLEX;
}

}  // namespace

int reduce(const char* function, const void* send, void* recv, std::size_t n_in, std::size_t n_out,
           MPI_Datatype type, MPI_Op op, const Carry& carry) {
  const auto known = op_of(op);
  if (!known) {
    return failed(std::string(function) +
                  ": JAX's collectives by ddl are sums, products, minima "
                  "and maxima");
  }
  const Call call{send, recv, n_in, n_out, *known, carry};
  if (type == MPI_FLOAT) return direct(call, DDL_TYPE_FLOAT);
  if (type == MPI_DOUBLE) return direct(call, DDL_TYPE_DOUBLE);
  if (type == MPI_INT || type == MPI_INT32_T) return direct(call, DDL_TYPE_INT32);
  if (type == MPI_INT64_T || type == MPI_LONG || type == MPI_LONG_LONG) {
    return direct(call, DDL_TYPE_INT64);
  }
  if (type == MPI_UINT32_T || type == MPI_UNSIGNED) {
    return as_signed<std::uint32_t, std::int32_t>(call, DDL_TYPE_INT32);
  }
  if (type == MPI_UINT64_T || type == MPI_UNSIGNED_LONG || type == MPI_UNSIGNED_LONG_LONG) {
    return as_signed<std::uint64_t, std::int64_t>(call, DDL_TYPE_INT64);
  }
  if (type == MPI_INT8_T || type == MPI_SIGNED_CHAR || type == MPI_CHAR) {
    return widened<std::int8_t>(call);
  }
  if (type == MPI_UINT8_T || type == MPI_UNSIGNED_CHAR || type == MPI_BYTE) {
    return widened<std::uint8_t>(call);
  }
  if (type == MPI_INT16_T || type == MPI_SHORT) return widened<std::int16_t>(call);
  if (type == MPI_UINT16_T || type == MPI_UNSIGNED_SHORT) return widened<std::uint16_t>(call);
  if (type == MPI_C_BOOL || type == MPI_CXX_BOOL) return as_bool(call);
  if (*known == DDL_OP_SUM && is_complex64(type)) return direct(call, DDL_TYPE_FLOAT, 2);
  if (*known == DDL_OP_SUM && is_complex128(type)) return direct(call, DDL_TYPE_DOUBLE, 2);
  return failed(std::string(function) + ": ddl reduces no elements of this type; use float32");
}

bool is_complex_product(MPI_Datatype type, MPI_Op op) {
  return op == MPI_PROD && (is_complex64(type) || is_complex128(type));
}

void multiply(void* product, const void* factor, std::size_t count, MPI_Datatype type) {
  if (is_complex64(type)) {
    multiply_as<float>(product, factor, count);
  } else {
    multiply_as<double>(product, factor, count);
  }
}

std::size_t size_of(MPI_Datatype type) {
  int size = 0;
  MPI_Type_size(type, &size);
  return size;
}

}  // namespace ddl_jax
