// A communicator of NCCL, as a rank has it.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "group.h"

struct ncclComm {
  std::unique_ptr<sim::Group> group;
  std::thread joining;
  std::atomic<bool> is_ready{false};
  std::atomic<int> under_way{0};
  std::uint64_t calls = 0;
  std::deque<std::vector<std::byte>> factors;  // of the operations that were created
};

namespace sim {

// The code, and `why` for whoever asks for the last error.
ncclResult_t fail(ncclResult_t code, const std::string& why);

}  // namespace sim
