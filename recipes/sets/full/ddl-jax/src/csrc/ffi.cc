// The collectives of `ddl.jax`, which XLA calls in the middle of a compiled program.
#include <ddl/ddl.h>
#include <mpi.h>
#include <xla/ffi/api/ffi.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "elements.h"
#include "error.h"

namespace ddl_jax {
namespace {

namespace ffi = xla::ffi;

// Communicators of its own: Python's calls of ddl may come between, in another order on each rank.
struct Comm {
  ddl_comm_t ddl = nullptr;
  int size = 1;
};
std::deque<Comm> comms;  // all ranks' first; a program calls them by their places, which stay
std::mutex mutex;

// Null where this process has made none of that place.
const Comm* comm_of(std::int64_t place) {
  const std::lock_guard lock(mutex);
  return place >= 0 && place < static_cast<std::int64_t>(comms.size()) ? &comms[place] : nullptr;
}

MPI_Datatype mpi_type_of(ffi::DataType type) {
  switch (type) {
    case ffi::PRED:
      return MPI_C_BOOL;
    case ffi::S8:
      return MPI_INT8_T;
    case ffi::S16:
      return MPI_INT16_T;
    case ffi::S32:
      return MPI_INT32_T;
    case ffi::S64:
      return MPI_INT64_T;
    case ffi::U8:
      return MPI_UINT8_T;
    case ffi::U16:
      return MPI_UINT16_T;
    case ffi::U32:
      return MPI_UINT32_T;
    case ffi::U64:
      return MPI_UINT64_T;
    case ffi::F32:
      return MPI_FLOAT;
    case ffi::F64:
      return MPI_DOUBLE;
    case ffi::C64:
      return MPI_C_COMPLEX;
    case ffi::C128:
      return MPI_C_DOUBLE_COMPLEX;
    default:
      return MPI_DATATYPE_NULL;
  }
}

MPI_Op mpi_op_of(std::string_view op) {
  if (op == "min") return MPI_MIN;
  if (op == "max") return MPI_MAX;
  if (op == "product") return MPI_PROD;
  return MPI_SUM;
}

DDL_Op ddl_op_of(std::string_view op) {
  if (op == "min") return DDL_OP_MIN;
  if (op == "max") return DDL_OP_MAX;
  if (op == "product") return DDL_OP_PRODUCT;
  return op == "mean" ? DDL_OP_AVERAGE : DDL_OP_SUM;
}

// A reduction of 16-bit floats and every mean are ddl's own; MPI has no names for them.
bool is_ddls_own(ffi::DataType type, std::string_view op) {
  return type == ffi::F16 || type == ffi::BF16 || op == "mean";
}

DDL_Type ddl_type_of(ffi::DataType type) {
  if (type == ffi::F16) return DDL_TYPE_HALF;
  if (type == ffi::BF16) return DDL_TYPE_BFLOAT16;
  return type == ffi::F64 ? DDL_TYPE_DOUBLE : DDL_TYPE_FLOAT;
}

ffi::Error answer(int code) {
  return code == MPI_SUCCESS ? ffi::Error::Success()
                             : ffi::Error(ffi::ErrorCode::kInternal, last_sentence());
}

int reduce_by(const char* name, const ffi::AnyBuffer& x, const ffi::AnyBuffer& y,
              std::string_view op, const Carry& carry) {
  const auto type = x.element_type();
  if (is_ddls_own(type, op)) {
    return result_of(carry(x.untyped_data(), y.untyped_data(), y.element_count(), ddl_type_of(type),
                           ddl_op_of(op)));
  }
  return reduce(name, x.untyped_data(), y.untyped_data(), x.element_count(), y.element_count(),
                mpi_type_of(type), mpi_op_of(op), carry);
}

int carry_out(const Comm& on, std::string_view kind, std::string_view op, int root,
              const ffi::AnyBuffer& x, const ffi::AnyBuffer& y) {
  const ddl_comm_t comm = on.ddl;
  const std::size_t nbytes = x.size_bytes();
  if (kind == "allreduce") {
    return reduce_by("ddl.jax.allreduce", x, y, op,
                     [comm](const void* in, void* out, std::size_t n, DDL_Type a, DDL_Op b) {
                       return ddl_comm_allreduce(comm, in, out, n, a, b);
                     });
  }
  if (kind == "reducescatter") {
    return reduce_by("ddl.jax.reducescatter", x, y, op,
                     [comm](const void* in, void* out, std::size_t n, DDL_Type a, DDL_Op b) {
                       return ddl_comm_reduce_scatter(comm, in, out, n, a, b);
                     });
  }
  if (kind == "allgather") {
    return result_of(ddl_comm_allgather(comm, x.untyped_data(), y.untyped_data(), nbytes));
  }
  if (kind == "alltoall") {
    return result_of(ddl_comm_alltoall(comm, x.untyped_data(), y.untyped_data(), nbytes / on.size));
  }
  if (kind == "broadcast") {
    std::memcpy(y.untyped_data(), x.untyped_data(), nbytes);
    return result_of(ddl_comm_broadcast(comm, y.untyped_data(), nbytes, root));
  }
  return result_of(ddl_comm_barrier(comm));
}

ffi::Error run(ffi::Token, ffi::AnyBuffer x, ffi::Result<ffi::Token>, ffi::Result<ffi::AnyBuffer> y,
               std::string_view kind, std::string_view op, std::int64_t root, std::int64_t group,
               std::int64_t size) {
  if (!ddl_initialized()) {
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "ddl.jax: ddl has ended, and a compiled program still runs");
  }
  const Comm* comm = comm_of(group);
  if (comm == nullptr || comm->size != size) {
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "ddl.jax: the program was compiled in another job, for a group of " +
                          std::to_string(size) + " ranks that is not there in this one (" +
                          std::to_string(comm == nullptr ? 0 : comm->size) +
                          " ranks); compile it here");
  }
  return answer(carry_out(*comm, kind, op, static_cast<int>(root), x, *y));
}

}  // namespace
}  // namespace ddl_jax

extern "C" DDL_API XLA_FFI_Error* ddl_jax_collective(XLA_FFI_CallFrame*);

XLA_FFI_DEFINE_HANDLER_SYMBOL(ddl_jax_collective, ddl_jax::run,
                              xla::ffi::Ffi::Bind()
                                  .Arg<xla::ffi::Token>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::Token>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Attr<std::string_view>("kind")
                                  .Attr<std::string_view>("op")
                                  .Attr<std::int64_t>("root")
                                  .Attr<std::int64_t>("group")
                                  .Attr<std::int64_t>("size"));

extern "C" {

// Makes the communicator of `n` ranks, which rise, or with 0 of all; collective over them. Returns
// its place, or minus ddl's code.
DDL_API int ddl_jax_start(const int* ranks, int n) {
  using namespace ddl_jax;  // NOLINT
  std::vector<int> members(ranks, ranks + n);
  if (n == 0) {
    const DDL_Result known = ddl_size(&n);
    if (known != DDL_SUCCESS) return -known;
    members.resize(n);
    std::iota(members.begin(), members.end(), 0);
  }
  Comm made{nullptr, n};
  const DDL_Result result = ddl_comm_create(members.data(), n, DDL_TAG_JAX_CALLS, &made.ddl);
  if (result != DDL_SUCCESS) return -result;
  const std::lock_guard lock(mutex);
  comms.push_back(made);
  return static_cast<int>(comms.size()) - 1;
}

// How many collectives it has carried out.
DDL_API unsigned long long ddl_jax_calls(void) {
  const std::lock_guard lock(ddl_jax::mutex);
  unsigned long long sum = 0;
  for (const ddl_jax::Comm& comm : ddl_jax::comms) {
    ddl_stats stats{};
    if (ddl_comm_stats(comm.ddl, &stats, sizeof stats) == DDL_SUCCESS) sum += stats.collectives;
  }
  return sum;
}
}
