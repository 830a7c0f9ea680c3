// Carries out queued allreduces: several small ones as one message where all ranks have them
// queued.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "async/group.h"
#include "async/request.h"
#include "comm.h"

namespace ddl {

class Fusion {
 public:
  Fusion(Comm& comm, std::size_t max_bytes);

  // Carries out some of the first operations of `queued`, which are one Group, and returns an
  // outcome for each of these. All ranks carry out the same number.
  std::vector<Outcome> run(const std::vector<Arguments>& queued);

  // The operations that travelled together with others, and the messages that carried them.
  std::uint64_t num_requests() const { return num_requests_.load(std::memory_order_relaxed); }
  std::uint64_t num_messages() const { return num_messages_.load(std::memory_order_relaxed); }

 private:
  template <class Body>
  Outcome outcome(const Body& body);
  std::size_t agree_on_number(const std::vector<Arguments>& queued);
  void run_fused(const std::vector<Arguments>& parts);

  Comm& comm_;
  std::size_t max_bytes_;
  std::unique_ptr<std::byte[]> buffer_;
  std::atomic<std::uint64_t> num_requests_{0};
  std::atomic<std::uint64_t> num_messages_{0};
};

}  // namespace ddl
