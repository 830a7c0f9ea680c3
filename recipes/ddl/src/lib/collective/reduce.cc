// Reduce to a root. On one host, every rank sums its slice of a chunk straight from the others'
// shared memory, and the root collects the slices. Between hosts, the sums go the way of an
// allreduce upwards, then from their owners to the root's host.
#include <algorithm>
#include <vector>

#include "collective/divisors.h"
#include "collective/ordered.h"
#include "collective/piggybacked.h"
#include "collective/pipeline.h"
#include "collective/run.h"
#include "comm/checks.h"
#include "comm/collective_table.h"
#include "comm/device_interface.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

void check_reduce(const char* function, const Comm& comm, const Arguments& args) {
  check_rank(function, "root", args.root, comm);
  check_reduction(function, args);
  const std::size_t nbytes = multiply(function, args.count, size_of(args.type));
  if (comm.rank() == args.root) {
    check_pair(function, args, nbytes);
  } else {
    check_buffer(function, "send", args.send, nbytes);
  }
}

// A sum lies in an output area until the root has copied it. The root does so for chunk c before it
// arrives at chunk c + 2, and nobody writes to the area again before that.
class SharedReduce {
 public:
  SharedReduce(Comm& comm, const Arguments& args)
      : host_(comm.host()),
        args_(args),
        is_root_(comm.rank() == args.root),
        width_(size_of(args.type)),
        chunk_(host_.chunk_bytes() / width_),
        chunks_((args.count + chunk_ - 1) / chunk_),
        first_(host_.take_slots(chunks_)),
        done_(host_.done()),
        inputs_(host_.size()) {}

  void run() {
    for (std::size_t c = 0; c < chunks_; ++c) {
      bring(c);
      host_.post_arrived();
      // While the others bring theirs. Nobody writes this output again before the root has brought
      // its next chunk, so two slots are enough.
      if (c > 0) collect(c - 1);
      host_.wait_all_arrived(host_.arrived());
      sum(c);
      host_.post_done();
    }
    collect(chunks_ - 1);
  }

 private:
  std::size_t length(std::size_t c) const { return std::min(chunk_, args_.count - c * chunk_); }
  Span own_slice(std::size_t c) const { return part_of(length(c), host_.size(), host_.rank()); }
  const std::byte* input(std::size_t c) const {
    return static_cast<const std::byte*>(args_.send) + c * chunk_ * width_;
  }

  void bring(std::size_t c) {
    std::byte* to = host_.input(host_.rank(), first_ + c);
    const Span own = own_slice(c);  // is read where it is
    for (const Span s : {Span{0, own.begin}, Span{own.end, length(c)}}) {
      if (s.count() == 0) continue;
      copy_bytes(to + s.begin * width_, input(c) + s.begin * width_, s.count() * width_);
    }
  }

  void sum(std::size_t c) {
    const Span own = own_slice(c);
    if (own.count() == 0) return;
    const std::size_t at = own.begin * width_;
    for (int rank = 0; rank < host_.size(); ++rank) {
      inputs_[rank] = (rank == host_.rank() ? input(c) : host_.input(rank, first_ + c)) + at;
    }
    reduce_function(args_.type, args_.op)(host_.output(first_ + c) + at, inputs_.data(),
                                          host_.size(), own.count(),
                                          args_.op == DDL_OP_AVERAGE ? host_.size() : 1.0);
  }

  void collect(std::size_t c) {
    if (!is_root_) return;
    host_.wait_all_done(done_ + static_cast<std::uint32_t>(c) + 1);
    std::byte* to = static_cast<std::byte*>(args_.recv) + c * chunk_ * width_;
    copy_bytes(to, host_.output(first_ + c), length(c) * width_);
  }

  HostGroup& host_;
  const Arguments& args_;
  const bool is_root_;
  const std::size_t width_;  // bytes per element
  const std::size_t chunk_;  // elements
  const std::size_t chunks_;
  const std::size_t first_;
  const std::uint32_t done_;  // the counter as the call began
  std::vector<const void*> inputs_;
};

void reduce_on_host(Comm& comm, const Arguments& args) { SharedReduce(comm, args).run(); }

Plan plan_reduce(const PlanInput& input) {
  Plan plan = plan_allreduce(input.tree, input.host, input.count, kPlanUnit);
  plan.steps.resize(plan.reducing);
  Step& last = plan.steps.emplace_back();
  last.tag = 1;  // steps that reduce have even tags
  for (const Piece& piece : owners_of_sums(input.tree, input.count, kPlanUnit)) {
    if (piece.host == input.root) continue;
    if (input.host == input.root) last.recvs.push_back({piece.host, piece.span});
    if (input.host == piece.host) last.sends.push_back({input.root, piece.span});
  }
  return plan;
}

// A chunk's slices lie one after the other, as in the data.
class PipelinedReduce final : public Pipeline {
 public:
  PipelinedReduce(Comm& comm, const Arguments& args, std::size_t chunk, Divisors divisors)
      : Pipeline(comm, (args.count + chunk - 1) / chunk, size_of(args.type),
                 reduce_function(args.type, args.op), divisors.last),
        args_(args),
        root_host_(comm.topology().host_index(args.root)),
        chunk_(chunk),
        divisor_(divisors.first) {}

 private:
  std::size_t length(std::size_t c) const { return std::min(chunk_, args_.count - c * chunk_); }
  Span slice(std::size_t c) const { return part_of(length(c), lanes_, host_.rank()); }
  const std::byte* input(std::size_t c) const {
    return static_cast<const std::byte*>(args_.send) + c * chunk_ * width_;
  }

  std::shared_ptr<const Plan> plan(std::size_t count) {
    return comm_.plan({Collective::kReduce, root_host_, count});
  }

  std::size_t inbox_bytes() override {
    const std::size_t last = (args_.count - 1) / chunk_;  // it is shorter
    return std::max(plan(slice(0).count())->inbox, plan(slice(last).count())->inbox) * width_;
  }

  void bring(std::size_t c) override {
    copy_bytes(host_.input(host_.rank(), slot_index(c)), input(c), length(c) * width_);
  }

  void start(std::size_t c, Slot* slot) override {
    const Span s = slice(c);
    if (s.count() == 0) return;
    slot->plan = plan(s.count());
    slot->work = host_.output(slot_index(c)) + s.begin * width_;
    slot->own = slot->work;
    inputs_.resize(host_.size());
    for (int rank = 0; rank < host_.size(); ++rank) {
      inputs_[rank] = host_.input(rank, slot_index(c)) + s.begin * width_;
    }
    reduce_(slot->work, inputs_.data(), host_.size(), s.count(), divisor_);
  }

  void finish(std::size_t, const Slot&) override {}

  void release(std::size_t c) override {
    if (comm_.rank() != args_.root) return;
    std::byte* to = static_cast<std::byte*>(args_.recv) + c * chunk_ * width_;
    copy_bytes(to, host_.output(slot_index(c)), length(c) * width_);
  }

  const Arguments& args_;
  const int root_host_;
  const std::size_t chunk_;  // elements
  const double divisor_;
};

void reduce_ordered(Comm& comm, const Arguments& args) {
  const std::size_t width = size_of(args.type);
  const auto share = [&](const std::byte* mine, std::size_t n, std::byte* output) {
    move_data(comm, kGatherRow, bytes_to_move(mine, output, n * width, args.root));
  };
  OrderedSum(comm, args).run_in_chunks(args, comm.rank() == args.root, share);
}

void reduce_on_many_hosts(Comm& comm, const Arguments& args) {
  if (comm.is_deterministic()) return reduce_ordered(comm, args);
  const std::size_t chunk = chunk_elements(comm, args.nbytes(), size_of(args.type));
  PipelinedReduce(comm, args, chunk, Divisors(comm.size(), args)).run();
}

}  // namespace

constexpr Row kReduceRow = [] {
  Row row;
  row.collective = Collective::kReduce;
  row.name = "reduce";
  row.async_name = "ireduce";
  row.unit = Unit::kElements;
  row.has_root = true;
  row.send = {Blocks::kOne, Users::kAll};
  row.recv = {Blocks::kOne, Users::kRoot};
  row.check = check_reduce;
  row.on_host = reduce_on_host;
  row.between_hosts = reduce_on_many_hosts;
  row.at_once = reduce_piggybacked;
  row.on_device = &DeviceGroup::reduce;
  row.plan = plan_reduce;
  return row;
}();

}  // namespace ddl
