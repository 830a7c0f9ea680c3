// Allreduce on one host through shared memory. A chunk is cut into one slice per rank, which
// reduces it straight from the others' shared memory. Two chunks are in flight: while one is
// reduced, the next is copied in.
#include <algorithm>
#include <cstring>
#include <vector>

#include "collective/on_host.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

class SharedAllreduce {
 public:
  SharedAllreduce(Comm& comm, const void* send, void* recv, std::size_t count, DDL_Type type,
                  DDL_Op op)
      : comm_(comm),
        host_(comm.host()),
        send_(static_cast<const std::byte*>(send)),
        recv_(static_cast<std::byte*>(recv)),
        count_(count),
        reduce_(reduce_function(type, op)),
        width_(size_of(type)),
        chunk_(host_.chunk_bytes() / width_),
        divisor_(op == DDL_OP_AVERAGE ? comm.size() : 1.0),
        copy_out_(copy_function(count * width_, send == recv)),
        inputs_(host_.size()) {}

  void run() {
    const std::size_t chunks = (count_ + chunk_ - 1) / chunk_;
    const std::uint32_t arrived = host_.arrived();
    const std::uint32_t done = host_.done();
    copy_in(0);
    for (std::size_t c = 0; c < chunks; ++c) {
      // Area c+1 is the area of c-1, whose inputs all ranks have read: we waited for their `done`.
      if (c + 1 < chunks) copy_in(c + 1);
      host_.wait_all_arrived(arrived + static_cast<std::uint32_t>(c) + 1);
      // Area c's output was read by all before they posted the arrival that we have just seen.
      reduce(c);
      host_.wait_all_done(done + static_cast<std::uint32_t>(c) + 1);
      copy_out(c);
    }
  }

 private:
  // Elements that are reduced and copied out before the next: they stay in the first-level cache.
  static constexpr std::size_t kBlock = 2048;

  std::size_t begin(std::size_t c) const { return c * chunk_; }
  std::size_t length(std::size_t c) const { return std::min(chunk_, count_ - begin(c)); }
  Span slice(std::size_t c, int lane) const { return part_of(length(c), host_.size(), lane); }

  // Our own slice is read where it is.
  void copy_in(std::size_t c) {
    std::byte* input = host_.input(host_.rank(), c & 1);
    const std::byte* from = send_ + begin(c) * width_;
    for (int lane = 0; lane < host_.size(); ++lane) {
      const Span s = slice(c, lane);
      if (lane == host_.rank() || s.count() == 0) continue;
      std::memcpy(input + s.begin * width_, from + s.begin * width_, s.count() * width_);
    }
    host_.post_arrived();
  }

  void reduce(std::size_t c) {
    const int lane = host_.rank();
    const Span s = slice(c, lane);
    for (std::size_t at = s.begin; at < s.end; at += kBlock) {
      const std::size_t n = std::min(kBlock, s.end - at);
      for (int i = 0; i < host_.size(); ++i) {
        const std::byte* from = i == lane ? send_ + begin(c) * width_ : host_.input(i, c & 1);
        inputs_[i] = from + at * width_;
      }
      std::byte* output = host_.output(c & 1) + at * width_;
      reduce_(output, inputs_.data(), host_.size(), n, divisor_);
      copy_out_(recv_ + (begin(c) + at) * width_, output, n * width_);
    }
    host_.post_done();
  }

  void copy_out(std::size_t c) {
    const std::byte* output = host_.output(c & 1);
    std::byte* to = recv_ + begin(c) * width_;
    for (int lane = 0; lane < host_.size(); ++lane) {
      const Span s = slice(c, lane);
      if (lane == host_.rank() || s.count() == 0) continue;
      copy_out_(to + s.begin * width_, output + s.begin * width_, s.count() * width_);
    }
  }

  Comm& comm_;
  HostGroup& host_;
  const std::byte* send_;
  std::byte* recv_;
  std::size_t count_;
  ReduceFunction reduce_;
  std::size_t width_;  // bytes per element
  std::size_t chunk_;  // elements
  double divisor_;
  CopyFunction copy_out_;
  std::vector<const void*> inputs_;
};

}  // namespace

void allreduce_on_host(Comm& comm, const void* send, void* recv, std::size_t count, DDL_Type type,
                       DDL_Op op) {
  SharedAllreduce(comm, send, recv, count, type, op).run();
}

}  // namespace ddl
