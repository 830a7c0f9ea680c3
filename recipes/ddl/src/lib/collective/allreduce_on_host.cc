// Allreduce on one host through shared memory. A chunk is cut into one slice per rank, which
// reduces it straight from the others' shared memory. On several sockets, it is cut into one slice
// per rank of a socket. The rank reduces it for its own socket, then adds the other sockets' sums.
// Two chunks are in flight, which stay in the caches: while one is reduced, the next is copied in.
// A rank that would wait for another copies further chunks in. Where a core is shared with somebody
// else, every hand-over can cost a time slice, and work done in advance needs none of its own.
#include <algorithm>
#include <vector>

#include "collective/divisors.h"
#include "collective/on_host.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

class SharedAllreduce {
 public:
  SharedAllreduce(Comm& comm, const Arguments& args)
      : host_(comm.host()),
        send_(static_cast<const std::byte*>(args.send)),
        recv_(static_cast<std::byte*>(args.recv)),
        count_(args.count),
        reduce_(reduce_function(args.type, args.op)),
        width_(size_of(args.type)),
        chunk_(host_.chunk_bytes() / width_),
        by_socket_(host_.num_sockets() > 1),
        divisors_(comm.size(), args),
        copy_out_(copy_function(args.nbytes(), send_ == recv_)),
        is_far_(host_.is_far()),
        chunks_((count_ + chunk_ - 1) / chunk_),
        first_(host_.take_slots(chunks_)),
        arrived_(host_.arrived()),
        summed_before_(host_.summed()),
        done_(host_.done()) {}

  void run() {
    while (copied_out_ < chunks_) {
      // Two chunks before all else, so that the others have work; more only instead of waiting.
      if (copied_in_ <= copied_out_ + 1 && copy_next_in()) continue;
      if (sum_next() || reduce_next() || copy_next_out() || copy_next_in()) continue;
      wait();
    }
  }

 private:
  // Bytes that are reduced and copied out before the next: they stay in the first-level cache.
  static constexpr std::size_t kBlock = 8192;

  std::size_t begin(std::size_t c) const { return c * chunk_; }
  std::size_t length(std::size_t c) const { return std::min(chunk_, count_ - begin(c)); }
  int lanes() const { return static_cast<int>(host_.neighbours().size()); }
  Span slice(std::size_t c, int lane) const { return part_of(length(c), lanes(), lane); }

  // The area of c was that of c - slots, whose inputs and output nobody reads any more: we have
  // copied it out, so all ranks had reduced it; and each copies it out before it posts c's arrival.
  bool copy_next_in() {
    if (copied_in_ == chunks_ || copied_in_ == copied_out_ + host_.slots()) return false;
    copy_in(copied_in_++);
    return true;
  }

  bool sum_next() {
    if (!by_socket_ || summed_ == copied_in_ || !host_.all_arrived(arrival(summed_))) return false;
    sum(summed_++);
    return true;
  }

  bool reduce_next() {
    if (by_socket_ ? reduced_ == summed_ || !host_.all_summed(sum_of(reduced_))
                   : reduced_ == copied_in_ || !host_.all_arrived(arrival(reduced_))) {
      return false;
    }
    reduce(reduced_++);
    return true;
  }

  bool copy_next_out() {
    if (copied_out_ == reduced_ || !host_.all_done(completion(copied_out_))) return false;
    copy_out(copied_out_++);
    return true;
  }

  // Waits until the earliest pending step can go on.
  void wait() {
    if (copied_out_ < reduced_) {
      host_.wait_all_done(completion(copied_out_));
    } else if (reduced_ < summed_) {
      host_.wait_all_summed(sum_of(reduced_));
    } else {
      host_.wait_all_arrived(arrival(reduced_));
    }
  }

  std::uint32_t arrival(std::size_t c) const {
    return arrived_ + static_cast<std::uint32_t>(c) + 1;
  }
  std::uint32_t sum_of(std::size_t c) const {
    return summed_before_ + static_cast<std::uint32_t>(c) + 1;
  }
  std::uint32_t completion(std::size_t c) const {
    return done_ + static_cast<std::uint32_t>(c) + 1;
  }
  std::size_t slot(std::size_t c) const { return first_ + c; }

  // Our own slice is read where it is.
  void copy_in(std::size_t c) {
    std::byte* input = host_.input(host_.rank(), slot(c));
    const std::byte* from = send_ + begin(c) * width_;
    const CopyFunction copy = is_far_ ? kernels().copy_streaming : kernels().copy;
    for (int lane = 0; lane < lanes(); ++lane) {
      const Span s = slice(c, lane);
      if (lane == host_.socket_rank() || s.count() == 0) continue;
      copy(input + s.begin * width_, from + s.begin * width_, s.count() * width_);
    }
    if (is_far_) end_copies();  // no flag is ordered after streaming stores
    host_.post_arrived();
  }

  void list_inputs(std::size_t c, std::size_t at) {
    host_.list_inputs(slot(c), send_ + begin(c) * width_, at * width_, &inputs_);
  }

  void sum(std::size_t c) {
    const Span s = slice(c, host_.socket_rank());
    if (s.count() > 0) {
      list_inputs(c, s.begin);
      std::byte* sum = host_.socket_sum(slot(c), host_.socket()) + s.begin * width_;
      reduce_(sum, inputs_.data(), static_cast<int>(inputs_.size()), s.count(), divisors_.first);
    }
    host_.post_summed();
  }

  void reduce(std::size_t c) {
    const double divisor = by_socket_ ? divisors_.last : divisors_.first * divisors_.last;
    const Span s = slice(c, host_.socket_rank());
    for (std::size_t at = s.begin; at < s.end; at += kBlock / width_) {
      const std::size_t n = std::min(kBlock / width_, s.end - at);
      if (by_socket_) {
        host_.list_socket_sums(slot(c), at * width_, &inputs_);
      } else {
        list_inputs(c, at);
      }
      std::byte* output = host_.output(slot(c), host_.socket()) + at * width_;
      std::byte* own = recv_ + (begin(c) + at) * width_;
      if (is_far_) {
        // Summed where the caller wants it, in our cache, and from there past it to the others.
        reduce_(own, inputs_.data(), static_cast<int>(inputs_.size()), n, divisor);
        kernels().copy_streaming(output, own, n * width_);
      } else {
        reduce_(output, inputs_.data(), static_cast<int>(inputs_.size()), n, divisor);
        copy_out_(own, output, n * width_);
      }
    }
    if (is_far_) end_copies();  // likewise
    host_.post_done();
  }

  void copy_out(std::size_t c) {
    const std::byte* output = host_.output(slot(c), host_.socket());
    std::byte* to = recv_ + begin(c) * width_;
    for (int lane = 0; lane < lanes(); ++lane) {
      const Span s = slice(c, lane);
      if (lane == host_.socket_rank() || s.count() == 0) continue;
      copy_out_(to + s.begin * width_, output + s.begin * width_, s.count() * width_);
    }
  }

  HostGroup& host_;
  const std::byte* send_;
  std::byte* recv_;
  std::size_t count_;
  ReduceFunction reduce_;
  std::size_t width_;  // bytes per element
  std::size_t chunk_;  // elements
  bool by_socket_;
  Divisors divisors_;
  CopyFunction copy_out_;
  bool is_far_;                      // the ranks, from each other
  std::vector<const void*> inputs_;  // of the sum at hand
  std::size_t chunks_;
  std::size_t first_;
  std::uint32_t arrived_;  // the counters as the call began
  std::uint32_t summed_before_;
  std::uint32_t done_;
  std::size_t copied_in_ = 0;  // chunks of which this rank has done so
  std::size_t summed_ = 0;     // stays so on one socket
  std::size_t reduced_ = 0;
  std::size_t copied_out_ = 0;
};

}  // namespace

void allreduce_on_host(Comm& comm, const Arguments& args) {
  comm.host().look_how_far(args.nbytes());
  SharedAllreduce(comm, args).run();
}

}  // namespace ddl
