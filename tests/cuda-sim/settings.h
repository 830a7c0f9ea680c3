// How the simulated machine is, from the environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sim {

// CUDASIM_FAULT=KIND@N[:RANK]: what happens at the Nth operation of streams, or the Nth of NCCL,
// in every process or in one rank's.
struct Fault {
  std::string kind;  // "": none; lost, ecc, illegal, kill, nccl-hang, nccl-error, memory, launch
  std::uint64_t at = 0;
};

struct Settings {
  // The machine's GPUs by the program's numbers: CUDASIM_DEVICES (2), or those of them that
  // CUDA_VISIBLE_DEVICES names.
  std::vector<int> visible;
  int devices;          // how many these are
  std::size_t memory;   // CUDASIM_MEMORY: bytes of each device that this process may have, 4 GiB
  std::uint64_t seed;   // CUDASIM_SEED, 1, with the rank
  std::uint64_t delay;  // CUDASIM_DELAY: the longest that an operation waits, 200 us
  int driver;           // CUDASIM_DRIVER: the newest CUDA that it serves, 1000 * major + 10 * minor
  Fault fault;
};

const Settings& settings();

// Ends the process: the program, or the simulation, has an error.
[[noreturn]] void die(const std::string& why);

// Says once that this is a simulation.
void announce();

}  // namespace sim
