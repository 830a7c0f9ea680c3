// Reduce-scatter. Every rank brings a piece of each block per chunk. On every host, the ranks share
// out the blocks: the block of local rank i of another host is summed by local rank i (modulo the
// ranks here) and sent to its owner, which adds what the hosts sent, in the order of the hosts.
#include <algorithm>
#include <cstring>

#include "collective/collectives.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

class ReduceScatter {
 public:
  ReduceScatter(Comm& comm, const void* send, void* recv, std::size_t recv_count, DDL_Type type,
                DDL_Op op)
      : comm_(comm),
        host_(comm.host()),
        send_(static_cast<const std::byte*>(send)),
        recv_(static_cast<std::byte*>(recv)),
        recv_count_(recv_count),
        type_(type),
        op_(op),
        width_(size_of(type)),
        piece_(host_.chunk_bytes() / width_ / comm.size()),
        divisor_(op == DDL_OP_AVERAGE ? comm.size() : 1.0),
        inputs_(host_.size()) {}

  void run() {
    int parity = 0;
    for (std::size_t begin = 0; begin < recv_count_; begin += piece_, parity ^= 1) {
      const std::size_t n = std::min(piece_, recv_count_ - begin);
      // This area's inputs of two chunks ago were read by all: they arrived at the last chunk
      // since.
      copy_in(parity, begin, n);
      host_.post_arrived();
      host_.wait_all_arrived(host_.arrived());
      if (comm_.num_hosts() == 1) {
        reduce_block(kFull, recv_ + begin * width_, comm_.rank(), parity, begin, n, divisor_);
      } else {
        reduce_between_hosts(parity, begin, n);
      }
    }
  }

 private:
  const std::byte* block(int rank, std::size_t begin) const {
    return send_ + (rank * recv_count_ + begin) * width_;
  }

  void copy_in(int parity, std::size_t begin, std::size_t n) {
    for (int rank = 0; rank < comm_.size(); ++rank) {
      if (rank == comm_.rank()) continue;  // read where it is
      std::memcpy(host_.input(host_.rank(), parity) + rank * piece_ * width_, block(rank, begin),
                  n * width_);
    }
  }

  // Reduces our host's pieces of the block of `rank`.
  void reduce_block(Stage stage, void* out, int rank, int parity, std::size_t begin, std::size_t n,
                    double divisor) {
    for (int i = 0; i < host_.size(); ++i) {
      const bool is_own = i == host_.rank() && rank == comm_.rank();
      inputs_[i] = is_own ? block(rank, begin) : host_.input(i, parity) + rank * piece_ * width_;
    }
    reduce_function(stage, type_, op_)(out, inputs_.data(), host_.size(), n, divisor);
  }

  void reduce_between_hosts(int parity, std::size_t begin, std::size_t n) {
    const std::vector<Host>& hosts = comm_.topology().hosts();
    const int me = comm_.host_index();
    const std::size_t wide = accumulator_size(type_);
    const std::size_t nbytes = n * wide;
    from_hosts_.resize(hosts.size() * nbytes);
    partials_.resize(comm_.size() * nbytes);

    Batch batch(comm_.transport());
    for (int h = 0; h < comm_.num_hosts(); ++h) {
      if (h == me) continue;
      const std::vector<int>& ranks = hosts[h].ranks;
      batch.recv(&from_hosts_[h * nbytes], nbytes, ranks[host_.rank() % ranks.size()]);
      for (std::size_t i = host_.rank(); i < ranks.size(); i += host_.size()) {
        std::byte* partial = &partials_[ranks[i] * nbytes];
        reduce_block(kPartial, partial, ranks[i], parity, begin, n, 1.0);
        batch.send(partial, nbytes, ranks[i]);
      }
    }
    reduce_block(kPartial, &from_hosts_[me * nbytes], comm_.rank(), parity, begin, n, 1.0);
    batch.wait();

    std::vector<const void*> parts;
    for (std::size_t h = 0; h < hosts.size(); ++h) parts.push_back(&from_hosts_[h * nbytes]);
    reduce_function(kFinal, type_, op_)(recv_ + begin * width_, parts.data(),
                                        static_cast<int>(parts.size()), n, divisor_);
  }

  Comm& comm_;
  HostGroup& host_;
  const std::byte* send_;
  std::byte* recv_;
  std::size_t recv_count_;
  DDL_Type type_;
  DDL_Op op_;
  std::size_t width_;  // bytes per element
  std::size_t piece_;  // elements of one block per chunk
  double divisor_;
  std::vector<const void*> inputs_;
  std::vector<std::byte> partials_;  // our host's sums of the blocks that we send, as accumulators
  std::vector<std::byte> from_hosts_;  // every host's sum of our block
};

}  // namespace

void reduce_scatter(Comm& comm, const void* send, void* recv, std::size_t recv_count, DDL_Type type,
                    DDL_Op op) {
  const Call call{Collective::kReduceScatter, static_cast<std::uint32_t>(type),
                  static_cast<std::uint32_t>(op), 0, recv_count};
  comm.run(call, [&] {
    comm.begin(call);
    ReduceScatter(comm, send, recv, recv_count, type, op).run();
  });
}

}  // namespace ddl
