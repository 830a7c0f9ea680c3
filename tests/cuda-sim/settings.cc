#include "settings.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace sim {
namespace {

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0') die(std::string(name) + "=" + text + " is no number");
  return value;
}

// As the launchers of MPI say it.
std::uint64_t rank() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"}) {
    if (std::getenv(name) != nullptr) return number(name, 0);
  }
  return 0;
}

// "": all of them.
std::vector<int> visible(int devices) {
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<int> found;
  if (text == nullptr) {
    for (int device = 0; device < devices; ++device) found.push_back(device);
    return found;
  }
  // As the driver does: those before the first that is not there.
  for (const char* at = text; *at != '\0';) {
    char* end = nullptr;
    const long device = std::strtol(at, &end, 10);
    if (end == at || device < 0 || device >= devices) break;
    found.push_back(static_cast<int>(device));
    at = *end == ',' ? end + 1 : end;
  }
  return found;
}

Fault fault() {
  const char* text = std::getenv("CUDASIM_FAULT");
  if (text == nullptr) return {};
  char kind[16] = "";
  unsigned long long at = 0;
  unsigned long long whose = rank();
  if (std::sscanf(text, "%15[a-z-]@%llu:%llu", kind, &at, &whose) < 2) {
    die(std::string("CUDASIM_FAULT=") + text + " is not KIND@N or KIND@N:RANK");
  }
  constexpr std::array kinds{"lost",      "ecc",        "illegal", "kill",
                             "nccl-hang", "nccl-error", "memory",  "launch"};
  if (std::none_of(kinds.begin(), kinds.end(), [&](auto k) { return !std::strcmp(k, kind); })) {
    die(std::string("CUDASIM_FAULT: there is no fault ") + kind);
  }
  return whose == rank() ? Fault{kind, at} : Fault{};
}

}  // namespace

const Settings& settings() {
  static const auto gpus = visible(static_cast<int>(number("CUDASIM_DEVICES", 2)));
  static const Settings* const found =
      new Settings{gpus,
                   static_cast<int>(gpus.size()),
                   number("CUDASIM_MEMORY", std::uint64_t{4} << 30),
                   number("CUDASIM_SEED", 1) * 1000003 + rank(),
                   number("CUDASIM_DELAY", 200),
                   static_cast<int>(number("CUDASIM_DRIVER", CUDART_VERSION)),
                   fault()};
  return *found;
}

void die(const std::string& why) {
  std::fprintf(stderr, "cudasim: %s\n", why.c_str());
  std::fflush(stderr);
  std::abort();
}

void announce() {
  static std::once_flag said;
  std::call_once(said, [] {
    std::fprintf(stderr, "cudasim: process %d has %d simulated GPUs, and no real one\n", getpid(),
                 settings().devices);
  });
}

}  // namespace sim
