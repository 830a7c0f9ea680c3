// What each collective does on GPUs: by NCCL, by NCCL and lanes, or through host memory.
#include <algorithm>

#include "collective/collectives.h"
#include "device/cuda_device.h"
#include "schedule/span.h"

namespace ddl {
namespace {

// Of a slice between hosts, or of a part of a chunk in host memory. Two are under way: one on the
// network, one between the GPU and the host.
constexpr std::size_t kPartBytes = std::size_t{4} << 20;

const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes(void* data) { return static_cast<std::byte*>(data); }

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

Call device_call(Collective collective, std::uint64_t count, int root = 0) {
  Call call{collective, 0, 0, root, count};
  call.is_on_device = 1;
  return call;
}

Call device_call(Collective collective, std::uint64_t count, DDL_Type type, DDL_Op op) {
  Call call = device_call(collective, count);
  call.type = type;
  call.op = op;
  return call;
}

void copy(void* to, const void* from, std::size_t nbytes, cudaMemcpyKind kind,
          cudaStream_t stream) {
  check_cuda(cudaMemcpyAsync(to, from, nbytes, kind, stream), "a copy on the GPU");
}

}  // namespace

// Of one row of a chunk, a multiple of `width`; at most kPartBytes for all rows together.
std::size_t CudaDevice::part_bytes(std::size_t rows, std::size_t width) const {
  const std::size_t wanted = comm_.settings().chunk_bytes;
  const std::size_t part = (wanted > 0 ? wanted : kPartBytes) / rows / width * width;
  return std::max(part, 16 * width);
}

// The stream has, in this order: bring 0, bring 1, deliver 0, bring 2, deliver 1, … on every rank,
// so that NCCL's operations meet. What bring(c) writes in a slot was read by deliver(c - 2), which
// is before it in the stream, and by exchange(c - 2), which has returned.
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

// A chunk is one slice per lane. It is worked on in memory of our own: the last one's slices are
// padded with what is left there of earlier ones, and nobody keeps those sums.
void CudaDevice::allreduce_between_hosts(Gpu& gpu, const std::byte* send, std::byte* recv,
                                         std::size_t count, DDL_Type type, DDL_Op op) {
  constexpr std::size_t kUnit = 16;  // elements: NCCL likes its slices aligned
  const std::size_t width = size_of(type);
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
  // Of our slice, without the padding; all of its lane have as many.
  const auto own = [&](std::size_t c) {
    if (!gpu.lane) return std::size_t{0};
    const std::size_t begin = std::min(lane * slice(c), length(c));
    return std::min(slice(c), length(c) - begin);
  };

  Steps steps;
  steps.bring = [&](std::size_t c) {
    copy(work(c), send + c * chunk * width, length(c) * width, cudaMemcpyDeviceToDevice,
         gpu.stream);
    gpu.nccl->reduce_slices(work(c), lanes, slice(c), type, op, comm_.size(), gpu.stream);
    if (own(c) == 0) return;
    copy(pinned(c), work(c) + lane * slice(c) * width, own(c) * width, cudaMemcpyDeviceToHost,
         gpu.stream);
  };
  steps.exchange = [&](std::size_t c) {
    // NCCL has divided.
    const DDL_Op rest = op == DDL_OP_AVERAGE ? DDL_OP_SUM : op;
    if (own(c) > 0) ddl::allreduce(*gpu.lane, pinned(c), pinned(c), own(c), type, rest);
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

void CudaDevice::through_host(Gpu& gpu, const Call& call, std::size_t nbytes, std::size_t width,
                              const Side& from, const Side& to, const HostCollective& collective) {
  const std::size_t part = part_bytes(std::max(from.rows, to.rows), width);
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    gpu.input[slot].at_least(part * from.rows);
    gpu.output[slot].at_least(part * to.rows);
  }
  const auto input = [&](std::size_t c) { return gpu.input[c % kSlots].at_least(0); };
  const auto output = [&](std::size_t c) { return gpu.output[c % kSlots].at_least(0); };
  const auto length = [&](std::size_t c) { return std::min(part, nbytes - c * part); };

  Steps steps;
  steps.bring = [&](std::size_t c) {
    if (from.data == nullptr) return;
    for (std::size_t row = 0; row < from.rows; ++row) {
      copy(input(c) + row * length(c), from.data + row * nbytes + c * part, length(c),
           cudaMemcpyDeviceToHost, gpu.stream);
    }
  };
  steps.exchange = [&](std::size_t c) {
    if (c > 0)
      comm_.agreement().begin(call);  // nobody still reads what the last part left in shared memory
    collective(input(c), output(c), length(c));
  };
  steps.deliver = [&](std::size_t c) {
    if (to.data == nullptr) return;
    for (std::size_t row = 0; row < to.rows; ++row) {
      copy(to.data + row * nbytes + c * part, output(c) + row * length(c), length(c),
           cudaMemcpyHostToDevice, gpu.stream);
    }
  };
  in_chunks(gpu, (nbytes + part - 1) / part, steps);
}

void CudaDevice::allreduce(const void* send, void* recv, std::size_t count, DDL_Type type,
                           DDL_Op op) {
  const Call call = device_call(Collective::kAllreduce, count, type, op);
  run(call, send, recv, [&](Gpu& gpu) {
    if (gpu.nccl && comm_.num_hosts() == 1) {
      gpu.nccl->allreduce(send, recv, count, type, op, comm_.size(), gpu.stream);
    } else if (gpu.nccl) {
      allreduce_between_hosts(gpu, bytes(send), bytes(recv), count, type, op);
    } else {
      const std::size_t width = size_of(type);
      through_host(gpu, call, count * width, width, {const_cast<std::byte*>(bytes(send)), 1},
                   {bytes(recv), 1}, [&](const std::byte* in, std::byte* out, std::size_t n) {
                     agreed::allreduce(comm_, in, out, n / width, type, op);
                   });
    }
  });
}

void CudaDevice::reduce_scatter(const void* send, void* recv, std::size_t recv_count, DDL_Type type,
                                DDL_Op op) {
  const Call call = device_call(Collective::kReduceScatter, recv_count, type, op);
  run(call, send, recv, [&](Gpu& gpu) {
    if (gpu.nccl && comm_.num_hosts() == 1) {
      gpu.nccl->reduce_scatter(send, recv, recv_count, type, op, comm_.size(), gpu.stream);
      return;
    }
    const std::size_t width = size_of(type);
    const auto blocks = static_cast<std::size_t>(comm_.size());
    through_host(gpu, call, recv_count * width, width,
                 {const_cast<std::byte*>(bytes(send)), blocks}, {bytes(recv), 1},
                 [&](const std::byte* in, std::byte* out, std::size_t n) {
                   agreed::reduce_scatter(comm_, in, out, n / width, type, op);
                 });
  });
}

void CudaDevice::broadcast(void* buffer, std::size_t nbytes, int root) {
  const Call call = device_call(Collective::kBroadcast, nbytes, root);
  run(call, buffer, buffer, [&](Gpu& gpu) {
    if (gpu.nccl && comm_.num_hosts() == 1) {
      gpu.nccl->broadcast(buffer, nbytes, root, gpu.stream);
      return;
    }
    const bool is_root = comm_.rank() == root;
    const Side here{bytes(buffer), 1};
    const Side nothing{nullptr, 1};
    through_host(gpu, call, nbytes, 1, is_root ? here : nothing, is_root ? nothing : here,
                 [&](const std::byte* in, std::byte* out, std::size_t n) {
                   agreed::broadcast(comm_, is_root ? const_cast<std::byte*>(in) : out, n, root);
                 });
  });
}

void CudaDevice::allgather(const void* send, void* recv, std::size_t nbytes) {
  const Call call = device_call(Collective::kAllgather, nbytes);
  run(call, send, recv, [&](Gpu& gpu) {
    if (gpu.nccl && comm_.num_hosts() == 1) {
      gpu.nccl->allgather(send, recv, nbytes, gpu.stream);
      return;
    }
    const auto blocks = static_cast<std::size_t>(comm_.size());
    through_host(gpu, call, nbytes, 1, {const_cast<std::byte*>(bytes(send)), 1},
                 {bytes(recv), blocks}, [&](const std::byte* in, std::byte* out, std::size_t n) {
                   agreed::allgather(comm_, in, out, n);
                 });
  });
}

}  // namespace ddl
