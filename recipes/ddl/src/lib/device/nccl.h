// NCCL among the ranks of one host.
#pragma once

#include <ddl/ddl.h>
#include <nccl.h>

#include <cstddef>
#include <functional>
#include <map>

namespace ddl {

// A communicator that never blocks: whoever has to wait for NCCL calls `wait`, which throws when
// that has become pointless. All its calls are made by one thread at a time, with the rank's GPU as
// the current device, and in the same order on all ranks.
class NcclGroup {
 public:
  using Wait = std::function<void(const std::function<bool()>& is_done)>;

  // Collective over `size` ranks, each on a GPU of its own; `id` is the first one's new_id().
  NcclGroup(const ncclUniqueId& id, int size, int rank, Wait wait);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  static ncclUniqueId new_id();

  // Ends what is under way on the GPU; nothing may follow. Never throws.
  void abort();
  // Throws when NCCL has found an error since.
  void check_health() const;

  // What each puts on the stream is NCCL's operation of that name. An average divides by
  // `all_ranks`, which may be more than are in this group.
  void allreduce(const void* send, void* recv, std::size_t count, DDL_Type type, DDL_Op op,
                 int all_ranks, cudaStream_t stream);
  void reduce_scatter(const void* send, void* recv, std::size_t recv_count, DDL_Type type,
                      DDL_Op op, int all_ranks, cudaStream_t stream);
  void allgather(const void* send, void* recv, std::size_t nbytes, cudaStream_t stream);
  void broadcast(void* buffer, std::size_t nbytes, int root, cudaStream_t stream);

  // `data` is `lanes` (<= size) slices of `count` elements. The sum of slice k goes to rank k, and
  // from there back to all; ranks from `lanes` on have none. In place.
  void reduce_slices(std::byte* data, int lanes, std::size_t count, DDL_Type type, DDL_Op op,
                     int all_ranks, cudaStream_t stream);
  void gather_slices(std::byte* data, int lanes, std::size_t nbytes, cudaStream_t stream);

 private:
  void check(ncclResult_t code, const char* what) const;
  // Returns once NCCL has put on the stream what it was given.
  void settle(ncclResult_t code, const char* what) const;
  ncclRedOp_t operation(DDL_Type type, DDL_Op op, int all_ranks);

  const int size_;
  const int rank_;
  const Wait wait_;
  ncclComm_t comm_ = nullptr;
  std::map<DDL_Type, ncclRedOp_t> averages_;
};

}  // namespace ddl
