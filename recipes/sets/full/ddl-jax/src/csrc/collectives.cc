// The collectives of XLA's groups, by ddl. Those of other communicators are MPI's.
#include <ddl/ddl.h>
#include <mpi.h>

#include <algorithm>
#include <string>
#include <vector>

#include "abi.h"
#include "elements.h"
#include "error.h"
#include "group.h"

namespace ddl_jax {
namespace {

constexpr std::size_t kGathered = 1 << 16;  // elements of each rank that a product holds at a time

// XLA hands its sizes, of 64 bits, to MPI's counts of 32.
bool is_cut(int count) { return count < 0; }

int refuse_cut(const char* function) {
  return failed(std::string(function) +
                ": the array has 2^31 elements or bytes or more, which XLA cannot hand to MPI; "
                "shard it further");
}

// The product over the ranks, in their order, of elements `first` to `first + count` of `send`.
// Every rank gathers all.
int product(const Group& group, const void* send, void* recv, std::size_t first, std::size_t count,
            std::size_t total, MPI_Datatype type) {
  const std::size_t size = size_of(type);
  std::vector<char> all(group.size * std::min(total, kGathered) * size);
  for (std::size_t begin = 0; begin < total; begin += kGathered) {
    const std::size_t n = std::min(kGathered, total - begin);
    const auto result = ddl_comm_allgather(group.ddl, static_cast<const char*>(send) + begin * size,
                                           all.data(), n * size);
    if (result != DDL_SUCCESS) return result_of(result);
    for (int rank = 1; rank < group.size; ++rank) {
      multiply(all.data(), &all[rank * n * size], n, type);
    }
    const std::size_t from = std::max(begin, first);
    const std::size_t to = std::min(begin + n, first + count);
    if (from >= to) continue;
    std::copy_n(&all[(from - begin) * size], (to - from) * size,
                static_cast<char*>(recv) + (from - first) * size);
  }
  return MPI_SUCCESS;
}

}  // namespace
}  // namespace ddl_jax

using namespace ddl_jax;  // NOLINT: this file ends with the library's face

extern "C" {

DDL_API int MPIABI_Allreduce(const void* send, void* recv, int count, abi::Handle type,
                             abi::Handle op, abi::Handle comm) {
  const auto mpi_type = abi::value<MPI_Datatype>(type);
  const auto mpi_op = abi::value<MPI_Op>(op);
  const Group* const group = find_group(comm);
  if (group == nullptr) {
    return MPI_Allreduce(send, recv, count, mpi_type, mpi_op, abi::value<MPI_Comm>(comm));
  }
  if (is_cut(count)) return refuse_cut("allreduce");
  const void* const from = send == MPI_IN_PLACE ? recv : send;
  if (is_complex_product(mpi_type, mpi_op)) {
    return product(*group, from, recv, 0, count, count, mpi_type);
  }
  return reduce("allreduce", from, recv, count, count, mpi_type, mpi_op,
                [&](const void* in, void* out, std::size_t n, DDL_Type a, DDL_Op b) {
                  return ddl_comm_allreduce(group->ddl, in, out, n, a, b);
                });
}

DDL_API int MPIABI_Reduce_scatter(const void* send, void* recv, const int counts[],
                                  abi::Handle type, abi::Handle op, abi::Handle comm) {
  const auto mpi_type = abi::value<MPI_Datatype>(type);
  const auto mpi_op = abi::value<MPI_Op>(op);
  const Group* const group = find_group(comm);
  const bool is_even = group != nullptr && send != MPI_IN_PLACE &&
                       std::count(counts, counts + group->size, counts[0]) == group->size;
  if (!is_even) {
    return MPI_Reduce_scatter(send, recv, counts, mpi_type, mpi_op, abi::value<MPI_Comm>(comm));
  }
  if (is_cut(counts[0])) return refuse_cut("reduce_scatter");
  const std::size_t count = counts[0];
  const std::size_t total = count * group->size;
  if (is_complex_product(mpi_type, mpi_op)) {
    return product(*group, send, recv, group->rank * count, count, total, mpi_type);
  }
  return reduce("reduce_scatter", send, recv, total, count, mpi_type, mpi_op,
                [&](const void* in, void* out, std::size_t n, DDL_Type a, DDL_Op b) {
                  return ddl_comm_reduce_scatter(group->ddl, in, out, n, a, b);
                });
}

DDL_API int MPIABI_Allgather(const void* send, int send_count, abi::Handle send_type, void* recv,
                             int recv_count, abi::Handle recv_type, abi::Handle comm) {
  const auto mpi_send_type = abi::value<MPI_Datatype>(send_type);
  const auto mpi_recv_type = abi::value<MPI_Datatype>(recv_type);
  const Group* const group = find_group(comm);
  const bool is_even = group != nullptr && send != MPI_IN_PLACE && send_count == recv_count &&
                       mpi_send_type == mpi_recv_type;
  if (!is_even) {
    return MPI_Allgather(send, send_count, mpi_send_type, recv, recv_count, mpi_recv_type,
                         abi::value<MPI_Comm>(comm));
  }
  if (is_cut(send_count)) return refuse_cut("allgather");
  const std::size_t nbytes = send_count * size_of(mpi_send_type);
  return result_of(ddl_comm_allgather(group->ddl, send, recv, nbytes));
}
}
