// Carries out queued allreduces: several small ones as one message where all ranks have them
// queued.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "async/group.h"
#include "async/reducer.h"
#include "collective/piggybacked.h"
#include "collective/run.h"
#include "comm/comm.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

// FNV-1a over the sizes: ranks whose parts differ shall see it even when the sums of them do not.
std::uint32_t fingerprint_of(const std::vector<Arguments>& parts) {
  std::uint32_t hash = 2166136261U;
  for (const Arguments& part : parts) {
    std::uint64_t count = part.count;
    for (int i = 0; i < 8; ++i, count >>= 8) hash = (hash ^ (count & 0xff)) * 16777619U;
  }
  return hash | 1;  // 0 means: not fused
}

// While it lives, the communicator's allreduces are announced as fused.
class Announcement {
 public:
  Announcement(Comm& comm, std::uint32_t fingerprint) : comm_(comm) {
    comm_.agreement().announce_as_fused(fingerprint);
  }
  ~Announcement() { comm_.agreement().announce_as_fused(0); }
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;

 private:
  Comm& comm_;
};

class Fusion : public Reducer {
 public:
  Fusion(Comm& comm, std::size_t max_bytes);

  std::vector<Outcome> run(const std::vector<Arguments>& queued) override;
  std::uint64_t num_requests() const override {
    return num_requests_.load(std::memory_order_relaxed);
  }
  std::uint64_t num_messages() const override {
    return num_messages_.load(std::memory_order_relaxed);
  }

 private:
  template <class Body>
  Outcome outcome(const Body& body);
  // How many of its queue's first operations every rank has, and whether the first is done.
  struct Agreed {
    std::size_t number = 0;
    bool is_first_done = false;
  };
  Agreed agree_on_number(const std::vector<Arguments>& queued);
  void run_fused(const std::vector<Arguments>& parts);

  Comm& comm_;
  std::size_t max_bytes_;
  std::unique_ptr<std::byte[]> buffer_;
  std::atomic<std::uint64_t> num_requests_{0};
  std::atomic<std::uint64_t> num_messages_{0};
};

// The buffer is not initialised, so its memory is only taken when something is fused.
Fusion::Fusion(Comm& comm, std::size_t max_bytes)
    : comm_(comm), max_bytes_(max_bytes), buffer_(new std::byte[max_bytes]) {}

std::vector<Outcome> Fusion::run(const std::vector<Arguments>& queued) {
  if (!is_fusable(queued[0], max_bytes_)) {
    return {outcome([&] { ddl::run(comm_, kAllreduceRow, queued[0]); })};
  }
  Agreed agreed;
  const Outcome agreement = outcome([&] { agreed = agree_on_number(queued); });
  if (agreement.code != DDL_SUCCESS) return {agreement};
  std::vector<Outcome> outcomes(agreed.is_first_done ? 1 : 0, agreement);
  const std::vector<Arguments> parts(queued.begin() + outcomes.size(),
                                     queued.begin() + agreed.number);
  if (parts.size() > 1) {
    bool is_same = true;
    const Outcome together = outcome([&] {
      try {
        run_fused(parts);
      } catch (const Disagreement&) {
        is_same = false;
      }
    });
    if (is_same) {
      outcomes.resize(agreed.number, together);
      return outcomes;
    }
    // All ranks know that their parts differ, and that nothing was moved. One by one, each part has
    // its own answer, and those that are the same everywhere succeed.
  }
  for (const Arguments& part : parts) {
    outcomes.push_back(outcome([&] { ddl::run(comm_, kAllreduceRow, part); }));
  }
  return outcomes;
}

// More is queued behind it, which must not meet what the others have in its place.
template <class Body>
Outcome Fusion::outcome(const Body& body) {
  return outcome_of([&] { comm_.or_give_up(body); });
}

// The first of `queued` is the same on all ranks, else Disagreement. It is done where its data are
// few enough to travel with the agreement.
Fusion::Agreed Fusion::agree_on_number(const std::vector<Arguments>& queued) {
  Call call = call_of(kIallreduceRow, queued[0]);
  call.fusion = static_cast<std::uint32_t>(queued.size());
  Agreed agreed;
  comm_.run(call, [&] {
    const auto fusion = allreduce_piggybacked(comm_, call, queued[0]);
    agreed = {fusion ? *fusion : comm_.agreement().begin(call), fusion.has_value()};
  });
  if (agreed.is_first_done) comm_.count_collective();
  return agreed;
}

void Fusion::run_fused(const std::vector<Arguments>& parts) {
  std::size_t count = 0;
  std::byte* end = buffer_.get();
  for (const Arguments& part : parts) {
    if (part.count > 0) copy_bytes(end, part.send, part.nbytes());
    end += part.nbytes();
    count += part.count;
  }
  {
    const Announcement announcement(comm_, fingerprint_of(parts));
    ddl::run(comm_, kAllreduceRow,
             {buffer_.get(), buffer_.get(), count, parts[0].type, parts[0].op});
  }
  // In the order of the queue: two parts may have the same output.
  const std::byte* begin = buffer_.get();
  for (const Arguments& part : parts) {
    if (part.count > 0) copy_bytes(part.recv, begin, part.nbytes());
    begin += part.nbytes();
  }
  num_requests_.fetch_add(parts.size(), std::memory_order_relaxed);
  num_messages_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

std::unique_ptr<Reducer> make_reducer(Comm& comm, std::size_t max_bytes) {
  return std::make_unique<Fusion>(comm, max_bytes);
}

}  // namespace ddl
