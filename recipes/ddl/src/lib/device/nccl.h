// NCCL among the ranks of one host.
#pragma once

#include <ddl/ddl.h>
#include <nccl.h>

#include <cstddef>
#include <functional>
#include <map>

#include "base/arguments.h"
#include "comm/device_interface.h"

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

  // Ends the operations under way on the GPU; nothing may follow. Never throws.
  void abort();
  // From now on, CUDA graphs of the program may have operations of this group.
  void begin_capture() { is_in_graphs_ = true; }
  bool is_in_graphs() const { return is_in_graphs_; }
  // Throws when NCCL has found an error since.
  void check_health() const;

  // Each puts NCCL's operation of that name on the stream. An average divides by `all_ranks`, which
  // may be more than are in this group.
  void allreduce(const Arguments& args, int all_ranks, cudaStream_t stream);
  void reduce(const Arguments& args, int all_ranks, cudaStream_t stream);
  void reduce_scatter(const Arguments& args, int all_ranks, cudaStream_t stream);
  void allgather(const Arguments& args, cudaStream_t stream);
  void broadcast(const Arguments& args, cudaStream_t stream);

  // `data` is `lanes` (<= size) slices of `count` elements of the type of `like`, reduced as it
  // says. The sum of slice k goes to rank k, and from there back to all; ranks from `lanes` on have
  // none. In place.
  void reduce_slices(std::byte* data, int lanes, std::size_t count, const Arguments& like,
                     int all_ranks, cudaStream_t stream);
  void gather_slices(std::byte* data, int lanes, std::size_t nbytes, cudaStream_t stream);

 private:
  void check(ncclResult_t code, const char* what) const;
  // Returns once NCCL has put all given operations on the stream.
  void settle(ncclResult_t code, const char* what) const;
  ncclRedOp_t operation(DDL_Type type, DDL_Op op, int all_ranks);
  void end(ncclResult_t (*how)(ncclComm_t));

  const int size_;
  const int rank_;
  const Wait wait_;
  ncclComm_t comm_ = nullptr;
  bool is_in_graphs_ = false;
  std::map<DDL_Type, ncclRedOp_t> averages_;
};

// The operations of rows, as those of a group of `all_ranks` on a stream.
class NcclOnStream final : public DeviceGroup {
 public:
  NcclOnStream(NcclGroup& group, int all_ranks, cudaStream_t stream)
      : group_(group), all_ranks_(all_ranks), stream_(stream) {}

  void allreduce(const Arguments& args) override { group_.allreduce(args, all_ranks_, stream_); }
  void reduce(const Arguments& args) override { group_.reduce(args, all_ranks_, stream_); }
  void reduce_scatter(const Arguments& args) override {
    group_.reduce_scatter(args, all_ranks_, stream_);
  }
  void broadcast(const Arguments& args) override { group_.broadcast(args, stream_); }
  void allgather(const Arguments& args) override { group_.allgather(args, stream_); }

 private:
  NcclGroup& group_;
  int all_ranks_;
  cudaStream_t stream_;
};

}  // namespace ddl
