// The collectives on GPUs: by NCCL, by NCCL and lanes, or through host memory.
#include <algorithm>

#include "collective/run.h"
#include "device/cuda_device.h"
#include "schedule/span.h"

namespace ddl {
namespace {

// The size of a slice between hosts, or of a part of a chunk in host memory. Two of them are under
// way: one on the network, one between the GPU and the host.
constexpr std::size_t kPartBytes = std::size_t{4} << 20;

const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes(void* data) { return static_cast<std::byte*>(data); }

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

void copy(void* to, const void* from, std::size_t nbytes, cudaMemcpyKind kind,
          cudaStream_t stream) {
  check_cuda(cudaMemcpyAsync(to, from, nbytes, kind, stream), "a copy on the GPU");
}

}  // namespace

// The bytes of one block in a chunk: a multiple of `width`, at most kPartBytes for all blocks
// together.
std::size_t CudaDevice::part_bytes(std::size_t blocks, std::size_t width) const {
  const std::size_t wanted = comm_.settings().chunk_bytes;
  const std::size_t part = (wanted > 0 ? wanted : kPartBytes) / blocks / width * width;
  return std::max(part, 16 * width);
}

// The stream has, in this order: bring 0, bring 1, deliver 0, bring 2, deliver 1, … on every rank,
// so that NCCL's operations meet. So bring(c) may overwrite its slot: deliver(c - 2) read it
// earlier in the stream, and exchange(c - 2) has returned.
void CudaDevice::in_chunks(Gpu& gpu, std::size_t chunks, const Steps& steps) {
  const auto bring = [&](std::size_t c) {
    steps.bring(c);
    gpu.brought[c % kSlots].record(gpu.stream);
  };
  bring(0);
  for (std::size_t c = 0; c < chunks; ++c) {
    if (c + 1 < chunks) bring(c + 1);
    wait(gpu.brought[c % kSlots]);
    steps.exchange(c);
    steps.deliver(c);
  }
}

// A chunk has one slice per lane, and is worked on in memory of the library's own. The slices of
// the last chunk are padded with leftovers of earlier ones, and nobody keeps those sums.
void CudaDevice::allreduce_between_hosts(Gpu& gpu, const Arguments& args) {
  constexpr std::size_t kUnit = 16;  // elements: NCCL likes its slices aligned
  const std::byte* send = bytes(args.send);
  std::byte* recv = bytes(args.recv);
  const std::size_t count = args.count;
  const std::size_t width = size_of(args.type);
  const int lanes = comm_.num_lanes();
  const std::size_t most = part_bytes(1, width) / width / kUnit * kUnit;
  const std::size_t chunk = most * lanes;
  const auto lane = static_cast<std::size_t>(comm_.host().rank());
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    gpu.work[slot].at_least(chunk * width);
    if (gpu.lane) gpu.input[slot].at_least(most * width);
  }

  const auto work = [&](std::size_t c) { return gpu.work[c % kSlots].at_least(0); };
  const auto pinned = [&](std::size_t c) { return gpu.input[c % kSlots].at_least(0); };
  const auto length = [&](std::size_t c) { return std::min(chunk, count - c * chunk); };
  const auto slice = [&](std::size_t c) {
    return round_up((length(c) + lanes - 1) / lanes, kUnit);
  };
  // The elements of this rank's slice without the padding; all ranks of its lane have as many.
  const auto own = [&](std::size_t c) {
    if (!gpu.lane) return std::size_t{0};
    const std::size_t begin = std::min(lane * slice(c), length(c));
    return std::min(slice(c), length(c) - begin);
  };

  Steps steps;
  steps.bring = [&](std::size_t c) {
    copy(work(c), send + c * chunk * width, length(c) * width, cudaMemcpyDeviceToDevice,
         gpu.stream);
    gpu.nccl->reduce_slices(work(c), lanes, slice(c), args, comm_.size(), gpu.stream);
    if (own(c) == 0) return;
    copy(pinned(c), work(c) + lane * slice(c) * width, own(c) * width, cudaMemcpyDeviceToHost,
         gpu.stream);
  };
  steps.exchange = [&](std::size_t c) {
    // NCCL has divided.
    const DDL_Op rest = args.op == DDL_OP_AVERAGE ? DDL_OP_SUM : args.op;
    if (own(c) == 0) return;
    ddl::run(*gpu.lane, kAllreduceRow, {pinned(c), pinned(c), own(c), args.type, rest});
  };
  steps.deliver = [&](std::size_t c) {
    if (own(c) > 0) {
      copy(work(c) + lane * slice(c) * width, pinned(c), own(c) * width, cudaMemcpyHostToDevice,
           gpu.stream);
    }
    gpu.nccl->gather_slices(work(c), lanes, slice(c) * width, gpu.stream);
    copy(recv + c * chunk * width, work(c), length(c) * width, cudaMemcpyDeviceToDevice,
         gpu.stream);
  };
  in_chunks(gpu, (count + chunk - 1) / chunk, steps);
}

CudaDevice::Rows CudaDevice::rows_of(const Side& side, const void* buffer, int root) const {
  const bool is_here = blocks_here(comm_, side, root) > 0;
  return {is_here ? const_cast<std::byte*>(bytes(buffer)) : nullptr,
          side.blocks == Blocks::kPerRank ? static_cast<std::size_t>(comm_.size()) : 1};
}

void CudaDevice::through_host(Gpu& gpu, const Row& row, const Call& call, const Arguments& args) {
  const std::size_t width = row.width(args.type);
  const std::size_t nbytes = args.count * width;
  const Rows from = rows_of(row.send, args.send, args.root);
  const Rows to = rows_of(row.recv, args.recv, args.root);
  const std::size_t part = part_bytes(std::max(from.blocks, to.blocks), width);
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    gpu.input[slot].at_least(part * from.blocks);
    gpu.output[slot].at_least(part * to.blocks);
  }
  const auto input = [&](std::size_t c) { return gpu.input[c % kSlots].at_least(0); };
  const auto output = [&](std::size_t c) { return gpu.output[c % kSlots].at_least(0); };
  const auto length = [&](std::size_t c) { return std::min(part, nbytes - c * part); };

  Steps steps;
  steps.bring = [&](std::size_t c) {
    if (from.data == nullptr) return;
    for (std::size_t block = 0; block < from.blocks; ++block) {
      copy(input(c) + block * length(c), from.data + block * nbytes + c * part, length(c),
           cudaMemcpyDeviceToHost, gpu.stream);
    }
  };
  steps.exchange = [&](std::size_t c) {
    // From the second part on, this ensures that nobody still reads the last part in shared memory.
    if (c > 0) comm_.agreement().begin(call);
    Arguments in_host_memory = args;
    in_host_memory.send = input(c);
    in_host_memory.recv = output(c);
    in_host_memory.count = length(c) / width;
    move_data(comm_, row, in_host_memory);
  };
  steps.deliver = [&](std::size_t c) {
    if (to.data == nullptr) return;
    for (std::size_t block = 0; block < to.blocks; ++block) {
      copy(to.data + block * nbytes + c * part, output(c) + block * length(c), length(c),
           cudaMemcpyHostToDevice, gpu.stream);
    }
  };
  in_chunks(gpu, (nbytes + part - 1) / part, steps);
}

// On the program's own stream: the communicator's would be captured until the program ends that.
void CudaDevice::capture(int device, const Row& row, const Call& call, const Arguments& args) {
  const Way way = way_;
  const char* why = capture_on(device) == Capture::kLost ? "that capture has failed"
                    : way == Way::kUnknown ? "the communicator's first collective on a GPU must "
                                             "come before"
                    : way == Way::kThroughHost
                        ? "only NCCL's operations on one host can be part of it, and this one goes "
                          "through host memory"
                        : nullptr;
  if (why != nullptr) {
    fail(DDL_ERROR_ARGUMENT, row.name, ": the stream is being captured into a CUDA graph, and ",
         why, "; call it before or after the capture");
  }
  const auto stream = static_cast<cudaStream_t>(t_stream);
  comm_.run(call, [&] {
    const CurrentDevice current(device);
    meet(call);
    try {
      gpu_->nccl->begin_capture();
      NcclOnStream group(*gpu_->nccl, comm_.size(), stream);
      (group.*row.on_device)(args);
    } catch (...) {
      stop(*gpu_);
      throw;
    }
  });
}

void CudaDevice::run(const Row& row, const Arguments& args) {
  Call call = call_of(row, args);
  call.is_on_device = 1;
  const int device = find_device(row, call, args);
  if (capture_on(device) != Capture::kNone) {
    call.is_on_device = Call::kCaptured;
    return capture(device, row, call, args);
  }
  run_on(device, call, [&](Gpu& gpu) {
    if (gpu.nccl && comm_.num_hosts() == 1) {
      NcclOnStream group(*gpu.nccl, comm_.size(), gpu.stream);
      (group.*row.on_device)(args);
    } else if (gpu.nccl && row.collective == Collective::kAllreduce) {
      allreduce_between_hosts(gpu, args);
    } else {
      through_host(gpu, row, call, args);
    }
  });
}

}  // namespace ddl
