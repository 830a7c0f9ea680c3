// CUDA graphs: what a stream is given while it is captured is kept, and done at each launch.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "memory.h"

namespace sim {

struct Node {
  std::string what;
  std::vector<Range> ranges;
  std::function<void()> body;
};

// One capture, of the stream where it began and of those that have joined it. Its nodes are done in
// the order in which they were given, which a real graph need not keep.
struct Capture {
  std::vector<Node> nodes;
  bool is_invalid = false;
};

// What the program may not do while `capture` goes on: the capture is lost. Null: no capture.
cudaError_t refuse(const std::shared_ptr<Capture>& capture, cudaError_t code);

// The same for calls that no stream names, as cudaMalloc: of any capture of the program.
cudaError_t refuse_unsafe();

}  // namespace sim
