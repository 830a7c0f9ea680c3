// Allreduce between hosts. A chunk's slices lie one after the other, as in the data. The k-th rank
// of every host sums slice k of its host straight from the others' shared memory. Where the host
// has several sockets, each rank adds up a part of its socket's sum first, and slice k is summed
// from these.
#include <algorithm>

#include "collective/between_hosts.h"
#include "collective/divisors.h"
#include "collective/pipeline.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

class PipelinedAllreduce final : public Pipeline {
 public:
  PipelinedAllreduce(Comm& comm, const Arguments& args, std::size_t chunk, Divisors divisors)
      : Pipeline(comm, (args.count + chunk - 1) / chunk, size_of(args.type),
                 reduce_function(args.type, args.op), divisors.last, comm.host().num_sockets() > 1),
        send_(static_cast<const std::byte*>(args.send)),
        recv_(static_cast<std::byte*>(args.recv)),
        count_(args.count),
        chunk_(chunk),
        divisor_(divisors.first),
        copy_out_(copy_function(args.nbytes(), send_ == recv_)) {}

 private:
  std::size_t begin(std::size_t c) const { return c * chunk_; }
  std::size_t length(std::size_t c) const { return std::min(chunk_, count_ - begin(c)); }
  Span slice(std::size_t c, int lane) const { return part_of(length(c), lanes_, lane); }

  std::size_t inbox_bytes() override {
    std::size_t most = 0;
    for (const std::size_t c : {std::size_t{0}, (count_ - 1) / chunk_}) {  // the last is shorter
      most = std::max(most, plan(slice(c, host_.rank()).count())->inbox * width_);
    }
    return most;
  }

  std::shared_ptr<const Plan> plan(std::size_t count) {
    return comm_.plan({Collective::kAllreduce, 0, count});
  }

  void bring(std::size_t c) override {
    std::byte* input = host_.input(host_.rank(), slot_index(c));
    const std::byte* from = send_ + begin(c) * width_;
    const Span own = by_socket_ ? part(c) : is_lane() ? slice(c, host_.rank()) : Span{};
    for (const Span s : {Span{0, own.begin}, Span{own.end, length(c)}}) {
      if (s.count() == 0) continue;  // ours is read where it is
      copy_bytes(input + s.begin * width_, from + s.begin * width_, s.count() * width_);
    }
  }

  // The part of its socket's sum that this rank adds up.
  Span part(std::size_t c) const {
    return part_of(length(c), static_cast<int>(host_.neighbours().size()), host_.socket_rank());
  }

  void sum(std::size_t c) override {
    const Span s = part(c);
    if (s.count() == 0) return;
    list_inputs(c, s.begin);
    std::byte* sum = host_.socket_sum(slot_index(c), host_.socket()) + s.begin * width_;
    reduce_(sum, inputs_.data(), static_cast<int>(inputs_.size()), s.count(), divisor_);
  }

  void list_inputs(std::size_t c, std::size_t at) {
    host_.list_inputs(slot_index(c), send_ + begin(c) * width_, at * width_, &inputs_);
  }

  // A rank that is alone on its host works in the caller's memory.
  void start(std::size_t c, Slot* slot) override {
    const Span s = slice(c, host_.rank());
    if (s.count() == 0) return;
    slot->plan = plan(s.count());
    if (host_.size() == 1) {
      slot->work = recv_ + (begin(c) + s.begin) * width_;
      slot->own = send_ + (begin(c) + s.begin) * width_;
      if (divisor_ == 1.0) return;
    } else {
      slot->work = host_.output(slot_index(c)) + s.begin * width_;
    }
    if (by_socket_) {
      host_.list_socket_sums(slot_index(c), s.begin * width_, &inputs_);
    } else {
      list_inputs(c, s.begin);
    }
    reduce_(slot->work, inputs_.data(), static_cast<int>(inputs_.size()), s.count(),
            by_socket_ ? 1.0 : divisor_);
    slot->own = slot->work;
  }

  void finish(std::size_t c, const Slot& slot) override {
    const Span s = slice(c, host_.rank());
    std::byte* to = recv_ + (begin(c) + s.begin) * width_;
    // Our own slice is copied while the other ranks of the host still wait for theirs.
    if (to != slot.work) copy_out_(to, slot.work, s.count() * width_);
  }

  void release(std::size_t c) override {
    const std::byte* output = host_.output(slot_index(c));
    std::byte* to = recv_ + begin(c) * width_;
    for (int lane = 0; lane < lanes_; ++lane) {
      const Span s = slice(c, lane);
      if (lane == host_.rank() || s.count() == 0) continue;
      copy_out_(to + s.begin * width_, output + s.begin * width_, s.count() * width_);
    }
  }

  const std::byte* send_;
  std::byte* recv_;
  std::size_t count_;
  std::size_t chunk_;  // elements
  double divisor_;
  CopyFunction copy_out_;
};

}  // namespace

void allreduce_between_hosts(Comm& comm, const Arguments& args) {
  const std::size_t chunk = chunk_elements(comm, args.nbytes(), size_of(args.type));
  PipelinedAllreduce(comm, args, chunk, Divisors(comm.size(), args)).run();
}

}  // namespace ddl
