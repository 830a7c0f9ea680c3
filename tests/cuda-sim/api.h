// What every function of the runtime's API begins and ends with.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

#include "settings.h"
#include "stream.h"

#define API extern "C" __attribute__((visibility("default")))

namespace sim {

using Lock = std::unique_lock<std::mutex>;

// Keeps an error for cudaGetLastError.
cudaError_t result(cudaError_t code);
// What every call that needs a device asks first.
cudaError_t check_machine();

// Runs `body`, which returns a code, with the machine's lock.
template <typename Body>
cudaError_t call(Body body) {
  Lock lock(machine().mutex);
  if (const cudaError_t code = check_machine(); code != cudaSuccess) return result(code);
  return result(body(lock));
}

// Waits for all that the current device was given.
void wait_for_device(Lock& lock);

}  // namespace sim
