#include "collective/pipeline.h"

#include <algorithm>
#include <cstring>

#include "comm/host_setup.h"

namespace ddl {
namespace {

// Identifies a message by its slot, its step, and the reduction of the step that it is for.
constexpr std::uint64_t kNoReduction = 0xffffffff;
constexpr std::uint64_t kSent = 0xffff;
std::uint64_t make_id(std::size_t slot, std::uint64_t step, std::uint64_t reduction) {
  return static_cast<std::uint64_t>(slot) << 48 | step << 32 | reduction;
}

// Chunks that are under way together differ in the slot; messages of one pair and step are
// received in the order of their spans.
int tag_of(std::size_t slot, const Step& step) {
  static_assert(tags::kPipeline.count >= kSlotsBetweenHosts * kMaxTags, "too few tags");
  return tags::kPipeline.at(static_cast<int>(slot) * kMaxTags + step.tag);
}

}  // namespace

std::size_t chunk_elements(const Comm& comm, std::size_t nbytes, std::size_t width) {
  const std::size_t capacity = comm.host().chunk_bytes() / width;
  const std::size_t chunk =
      std::min(comm.chunking().chunk_bytes(nbytes) / width, capacity) / 64 * 64;
  return std::max(chunk, capacity < 64 ? std::size_t{1} : std::size_t{64});
}

Pipeline::Pipeline(Comm& comm, std::size_t chunks, std::size_t width, ReduceFunction reduce,
                   double last_divisor, bool by_socket)
    : comm_(comm),
      host_(comm.host()),
      lanes_(comm.num_lanes()),
      width_(width),
      reduce_(reduce),
      by_socket_(by_socket),
      last_divisor_(last_divisor),
      chunks_(chunks),
      arrived_(host_.arrived()),
      summed_before_(host_.summed()),
      done_(host_.done()),
      slots_(host_.slots()),
      window_(std::min(comm.window(), slots_.size())),
      batch_(comm.transport()) {}

void Pipeline::run() {
  if (is_lane()) {
    const std::size_t inbox = inbox_bytes();
    std::byte* workspace = comm_.workspace(inbox * slots_.size());
    for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].inbox = workspace + i * inbox;
  }
  PollBackoff backoff(comm_.transport());
  // The work that others wait for comes first: bringing, then sums, then messages.
  while (released_ < chunks_) {
    bool has_moved = false;
    while (bring_next()) has_moved = true;
    while (start_next() || sum_next()) has_moved = true;
    has_moved |= batch_.poll([this](std::uint64_t id) { complete(id); });
    while (finish_next()) has_moved = true;
    while (release_next()) has_moved = true;
    if (has_moved) {
      backoff.start_over();
    } else {
      backoff.wait([this] { return missing_ranks(); });
    }
  }
}

bool Pipeline::bring_next() {
  const std::size_t c = brought_;
  if (c == chunks_ || c - released_ == window_) return false;
  bring(c);
  host_.post_arrived();
  ++brought_;
  return true;
}

bool Pipeline::sum_next() {
  const std::size_t c = summed_;
  if (c == brought_) return false;
  if (!host_.all_arrived(arrived_ + static_cast<std::uint32_t>(c) + 1)) return false;
  // On one socket there is nothing to sum: the chunk passes once all have brought it.
  if (by_socket_) {
    sum(c);
    host_.post_summed();
  }
  ++summed_;
  return true;
}

bool Pipeline::start_next() {
  const std::size_t c = started_;
  if (c == summed_) return false;
  if (by_socket_ && !host_.all_summed(summed_before_ + static_cast<std::uint32_t>(c) + 1)) {
    return false;
  }
  ++started_;
  Slot& slot = slots_[slot_index(c)];
  slot.plan = nullptr;
  // Ranks that are no lane follow no plan, but raise their counters as often.
  if (!is_lane()) return true;
  start(c, &slot);
  if (slot.plan) begin_steps(slot_index(c));
  return true;
}

bool Pipeline::finish_next() {
  // In the order of chunks, though a later one may be complete: `done` only counts.
  const std::size_t c = finished_;
  if (c == started_) return false;
  const Slot& slot = slots_[slot_index(c)];
  if (slot.plan) {
    if (slot.step < slot.plan->steps.size()) return false;
    finish(c, slot);
  }
  host_.post_done();
  ++finished_;
  return true;
}

bool Pipeline::release_next() {
  // The slot is filled again: MPI must have sent it, and the host's ranks must have its result.
  const std::size_t c = released_;
  if (c == finished_ || slots_[slot_index(c)].sending > 0) return false;
  if (!host_.all_done(done_ + static_cast<std::uint32_t>(c) + 1)) return false;
  release(c);
  ++released_;
  return true;
}

void Pipeline::begin_steps(std::size_t index) {
  Slot& slot = slots_[index];
  slot.step = 0;
  slot.sending = 0;
  slot.awaited.clear();
  slot.missing.clear();
  for (const Step& step : slot.plan->steps) {
    std::size_t awaited = step.recvs.size();
    std::vector<std::size_t>& missing = slot.missing.emplace_back();
    for (const Reduction& reduction : step.reductions) {
      missing.push_back(reduction.from.size() - 1);
      awaited += missing.back();
    }
    slot.awaited.push_back(awaited);
  }
  post_receives(index);
  post_sends(index);
  advance(index);
}

// All receives of the chunk are posted at once, so that early messages need no copy. A result's
// receive may be posted over a part that is still being sent: the result comes from those who got
// that part.
void Pipeline::post_receives(std::size_t index) {
  const Slot& slot = slots_[index];
  const std::vector<Host>& hosts = comm_.topology().hosts();
  const std::size_t lane = host_.rank();
  for (std::size_t i = 0; i < slot.plan->steps.size(); ++i) {
    const Step& step = slot.plan->steps[i];
    for (std::size_t r = 0; r < step.reductions.size(); ++r) {
      const Reduction& reduction = step.reductions[r];
      std::byte* to = slot.inbox + reduction.inbox * width_;
      for (const int from : reduction.from) {
        if (from == comm_.host_index()) continue;
        batch_.recv(to, reduction.span.count() * width_, hosts[from].ranks[lane],
                    tag_of(index, step), make_id(index, i, r));
        to += reduction.span.count() * width_;
      }
    }
    for (const Transfer& part : step.recvs) {
      batch_.recv(slot.work + part.span.begin * width_, part.span.count() * width_,
                  hosts[part.host].ranks[lane], tag_of(index, step),
                  make_id(index, i, kNoReduction));
    }
  }
}

void Pipeline::post_sends(std::size_t index) {
  Slot& slot = slots_[index];
  const std::vector<Host>& hosts = comm_.topology().hosts();
  const Step& step = slot.plan->steps[slot.step];
  for (const Transfer& part : step.sends) {
    const std::byte* from = part.is_given ? slot.own : slot.work;
    batch_.send(from + part.span.begin * width_, part.span.count() * width_,
                hosts[part.host].ranks[host_.rank()], tag_of(index, step),
                make_id(index, kSent, 0));
    ++slot.sending;
  }
}

// Enters every step that nothing is missing for.
void Pipeline::advance(std::size_t index) {
  Slot& slot = slots_[index];
  const std::vector<Step>& steps = slot.plan->steps;
  while (slot.step < steps.size() && slot.awaited[slot.step] == 0) {
    if (++slot.step == steps.size()) return;
    // A step sends results of those before it, never its own: it can send as soon as it begins.
    post_sends(index);
    const std::vector<std::size_t>& missing = slot.missing[slot.step];
    // Parts may have come before their step; its sums also need the results of the steps before.
    for (std::size_t r = 0; r < missing.size(); ++r) {
      if (missing[r] == 0) reduce(slot, steps[slot.step].reductions[r]);
    }
  }
}

// In the tree's order, whatever came first: the same sum in every run.
void Pipeline::reduce(const Slot& slot, const Reduction& reduction) {
  const Span span = reduction.span;
  const std::byte* part = slot.inbox + reduction.inbox * width_;
  inputs_.clear();
  for (const int from : reduction.from) {
    if (from == comm_.host_index()) {
      const bool is_given = slot.step < slot.plan->given;
      inputs_.push_back((is_given ? slot.own : slot.work) + span.begin * width_);
    } else {
      inputs_.push_back(part);
      part += span.count() * width_;
    }
  }
  const bool is_last = slot.step + 1 == slot.plan->reducing;
  reduce_(slot.work + span.begin * width_, inputs_.data(), static_cast<int>(inputs_.size()),
          span.count(), is_last ? last_divisor_ : 1.0);
}

void Pipeline::complete(std::uint64_t id) {
  const std::size_t index = id >> 48;
  const std::size_t step = id >> 32 & 0xffff;
  const std::size_t reduction = id & 0xffffffff;
  Slot& slot = slots_[index];
  if (step == kSent) {
    --slot.sending;
    return;
  }
  --slot.awaited[step];
  // A part that comes before its step is summed when that begins: see advance().
  if (reduction != kNoReduction && --slot.missing[step][reduction] == 0 && step == slot.step) {
    reduce(slot, slot.plan->steps[step].reductions[reduction]);
  }
  advance(index);
}

std::vector<int> Pipeline::missing_ranks() const {
  const std::size_t arrived = summed_ + (summed_ < brought_ ? 1 : 0);
  const std::size_t summed = by_socket_ ? started_ + (started_ < summed_ ? 1 : 0) : 0;
  const std::size_t done = released_ + (released_ < finished_ ? 1 : 0);
  std::vector<int> ranks = host_.missing(arrived_ + static_cast<std::uint32_t>(arrived),
                                         summed_before_ + static_cast<std::uint32_t>(summed),
                                         done_ + static_cast<std::uint32_t>(done));
  const std::vector<int> there = batch_.awaited();
  ranks.insert(ranks.end(), there.begin(), there.end());
  return ranks;
}

}  // namespace ddl
