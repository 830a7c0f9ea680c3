// All-gather and reduce-scatter between hosts. A chunk has a piece of every rank's block. The
// pieces lie in shared memory lane by lane, and in a lane's slice host by host. So the data of a
// host is one span of the slice.
#include <algorithm>

#include "collective/between_hosts.h"
#include "collective/divisors.h"
#include "collective/pipeline.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

class PipelineOfBlocks : public Pipeline {
 protected:
  // Every rank's block has `block` elements, and a chunk has `piece` of each.
  PipelineOfBlocks(Comm& comm, Collective kind, std::size_t block, std::size_t piece,
                   std::size_t width, ReduceFunction reduce, double divisor)
      : Pipeline(comm, (block + piece - 1) / piece, width, reduce, divisor),
        kind_(kind),
        block_(block),
        piece_(piece) {
    for (const Host& host : comm.topology().hosts()) {
      ranks_.insert(ranks_.end(), host.ranks.begin(), host.ranks.end());
    }
    const std::vector<Host>& hosts = comm.topology().hosts();
    for (int h = 0; h < comm.host_index(); ++h) first_ += hosts[h].ranks.size();
  }

  // The part of every block's piece in chunk c that goes through `lane`.
  Span part(std::size_t c, int lane) const {
    return part_of(std::min(piece_, block_ - c * piece_), lanes_, lane);
  }
  Span slice(std::size_t c, int lane) const {
    const Span p = part(c, lane);
    return {ranks_.size() * p.begin, ranks_.size() * p.end};
  }

  // Calls use(rank, where the rank's part is in its block, where it is in the chunk, elements) for
  // ranks_[begin, end) and all lanes.
  template <class Use>
  void for_each_part(std::size_t c, std::size_t begin, std::size_t end, const Use& use) const {
    for (int lane = 0; lane < lanes_; ++lane) {
      const Span p = part(c, lane);
      if (p.count() == 0) continue;
      for (std::size_t i = begin; i < end; ++i) {
        use(ranks_[i], c * piece_ + p.begin, slice(c, lane).begin + i * p.count(), p.count());
      }
    }
  }

  std::shared_ptr<const Plan> plan(std::size_t c) {
    return comm_.plan({kind_, 0, slice(c, host_.rank()).count()});
  }

  std::size_t inbox_bytes() override {
    return std::max(plan(0)->inbox, plan((block_ - 1) / piece_)->inbox) * width_;
  }

  const Collective kind_;
  const std::size_t block_;
  const std::size_t piece_;
  std::vector<int> ranks_;  // host by host
  std::size_t first_ = 0;   // of this host's in ranks_
};

class PipelinedAllgather final : public PipelineOfBlocks {
 public:
  PipelinedAllgather(Comm& comm, const Arguments& args, std::size_t piece)
      : PipelineOfBlocks(comm, Collective::kAllgather, args.count, piece, 1, nullptr, 1.0),
        send_(static_cast<const std::byte*>(args.send)),
        recv_(static_cast<std::byte*>(args.recv)),
        copy_out_(copy_function(args.count * comm.size(), false)) {}

 private:
  void bring(std::size_t c) override {
    std::byte* input = host_.input(host_.rank(), slot_index(c));
    const std::size_t me = first_ + host_.rank();
    for_each_part(c, me, me + 1, [&](int, std::size_t from, std::size_t to, std::size_t n) {
      copy_bytes(input + to, send_ + from, n);
    });
  }

  void start(std::size_t c, Slot* slot) override {
    const Span s = slice(c, host_.rank());
    if (s.count() == 0) return;
    slot->plan = plan(c);
    slot->work = host_.output(slot_index(c)) + s.begin;
    slot->own = slot->work;
    const std::size_t n = part(c, host_.rank()).count();
    for (int i = 0; i < host_.size(); ++i) {
      const std::size_t at = (first_ + i) * n;
      copy_bytes(slot->work + at, host_.input(i, slot_index(c)) + s.begin + at, n);
    }
  }

  void finish(std::size_t, const Slot&) override {}

  void release(std::size_t c) override {
    const std::byte* output = host_.output(slot_index(c));
    for_each_part(c, 0, ranks_.size(),
                  [&](int rank, std::size_t to, std::size_t from, std::size_t n) {
                    std::byte* block = recv_ + rank * block_;
                    if (rank == comm_.rank() && block == send_) return;  // in place
                    copy_out_(block + to, output + from, n);
                  });
  }

  const std::byte* send_;
  std::byte* recv_;
  CopyFunction copy_out_;
};

class PipelinedReduceScatter final : public PipelineOfBlocks {
 public:
  PipelinedReduceScatter(Comm& comm, const Arguments& args, std::size_t piece, Divisors divisors)
      : PipelineOfBlocks(comm, Collective::kReduceScatter, args.count, piece, size_of(args.type),
                         reduce_function(args.type, args.op), divisors.last),
        send_(static_cast<const std::byte*>(args.send)),
        recv_(static_cast<std::byte*>(args.recv)),
        divisor_(divisors.first) {}

 private:
  void bring(std::size_t c) override {
    std::byte* input = host_.input(host_.rank(), slot_index(c));
    for_each_part(
        c, 0, ranks_.size(), [&](int rank, std::size_t from, std::size_t to, std::size_t n) {
          copy_bytes(input + to * width_, send_ + (rank * block_ + from) * width_, n * width_);
        });
  }

  void start(std::size_t c, Slot* slot) override {
    const Span s = slice(c, host_.rank());
    if (s.count() == 0) return;
    slot->plan = plan(c);
    slot->work = host_.output(slot_index(c)) + s.begin * width_;
    slot->own = slot->work;
    inputs_.resize(host_.size());
    for (int i = 0; i < host_.size(); ++i) {
      inputs_[i] = host_.input(i, slot_index(c)) + s.begin * width_;
    }
    reduce_(slot->work, inputs_.data(), host_.size(), s.count(), divisor_);
  }

  void finish(std::size_t, const Slot&) override {}

  void release(std::size_t c) override {
    const std::byte* output = host_.output(slot_index(c));
    const std::size_t me = first_ + host_.rank();
    for_each_part(c, me, me + 1, [&](int, std::size_t to, std::size_t from, std::size_t n) {
      copy_bytes(recv_ + to * width_, output + from * width_, n * width_);
    });
  }

  const std::byte* send_;
  std::byte* recv_;
  double divisor_;
};

// Elements of every block that a chunk takes.
std::size_t piece_of(const Comm& comm, std::size_t block, std::size_t width) {
  const std::size_t all = chunk_elements(comm, block * comm.size() * width, width);
  const std::size_t piece = all / comm.size();
  return std::max(std::size_t{1}, piece < 64 ? piece : piece / 64 * 64);
}

}  // namespace

void allgather_between_hosts(Comm& comm, const Arguments& args) {
  PipelinedAllgather(comm, args, piece_of(comm, args.count, 1)).run();
}

void reduce_scatter_between_hosts(Comm& comm, const Arguments& args) {
  const std::size_t piece = piece_of(comm, args.count, size_of(args.type));
  PipelinedReduceScatter(comm, args, piece, Divisors(comm.size(), args)).run();
}

}  // namespace ddl
