// Broadcast between hosts: the root's chunk lies in its host's memory for all lanes to send.
#include <algorithm>

#include "collective/between_hosts.h"
#include "collective/pipeline.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

class PipelinedBroadcast final : public Pipeline {
 public:
  PipelinedBroadcast(Comm& comm, const Arguments& args, std::size_t chunk)
      : Pipeline(comm, (args.count + chunk - 1) / chunk, 1, nullptr, 1.0),
        send_(static_cast<const std::byte*>(args.send)),
        recv_(static_cast<std::byte*>(args.recv)),
        nbytes_(args.count),
        chunk_(chunk),
        root_(args.root),
        root_host_(comm.topology().host_index(args.root)) {}

 private:
  std::size_t length(std::size_t c) const { return std::min(chunk_, nbytes_ - c * chunk_); }
  bool is_root() const { return comm_.rank() == root_; }

  void bring(std::size_t c) override {
    if (!is_root()) return;
    copy_bytes(host_.input(host_.rank(), slot_index(c)), send_ + c * chunk_, length(c));
  }

  void start(std::size_t c, Slot* slot) override {
    const Span s = part_of(length(c), lanes_, host_.rank());
    if (s.count() == 0) return;
    slot->plan = comm_.plan({Collective::kBroadcast, root_host_, s.count()});
    slot->work = host_.output(slot_index(c)) + s.begin;
    slot->own = slot->work;
    // The other hosts receive into `work`.
    if (comm_.host_index() != root_host_) return;
    const int local_root = comm_.topology().local_rank(root_);
    copy_bytes(slot->work, host_.input(local_root, slot_index(c)) + s.begin, s.count());
  }

  void finish(std::size_t, const Slot&) override {}

  void release(std::size_t c) override {
    if (is_root()) return;
    copy_bytes(recv_ + c * chunk_, host_.output(slot_index(c)), length(c));
  }

  std::size_t inbox_bytes() override { return 0; }

  const std::byte* send_;  // the root's
  std::byte* recv_;        // the others'
  std::size_t nbytes_;
  std::size_t chunk_;  // bytes
  int root_;
  int root_host_;
};

}  // namespace

void broadcast_between_hosts(Comm& comm, const Arguments& args) {
  PipelinedBroadcast(comm, args, chunk_elements(comm, args.count, 1)).run();
}

}  // namespace ddl
