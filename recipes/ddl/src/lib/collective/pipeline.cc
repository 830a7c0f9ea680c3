#include "collective/pipeline.h"

#include <algorithm>
#include <cstring>

namespace ddl {
namespace {

// Between hosts a message should be long against its overhead, and there should be enough chunks to
// fill the pipeline.
constexpr std::size_t kLeastChunk = std::size_t{32} << 10;
constexpr std::size_t kMostChunk = std::size_t{128} << 10;
constexpr std::size_t kWantedChunks = 32;

bool is_16_bit(DDL_Type type) { return type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16; }

double power_above(int n) {
  double power = 1;
  while (power < n) power *= 2;
  return power;
}

// What a message is: of which slot and step, and which reduction of the step it is for.
constexpr std::uint64_t kNoReduction = 0xffffffff;
constexpr std::uint64_t kSent = 0xff;
std::uint64_t make_id(std::size_t slot, std::uint64_t step, std::uint64_t reduction) {
  return static_cast<std::uint64_t>(slot) << 40 | step << 32 | reduction;
}

// Chunks that are under way together differ in the slot; messages of one pair and step are
// received in the order of their spans.
int tag_of(std::size_t slot, const Step& step) {
  return Batch::kPipelineTag + static_cast<int>(slot) * kMaxTags + step.tag;
}

}  // namespace

Span part_of(std::size_t count, int parts, int index) {
  constexpr std::size_t kUnit = 64;
  const std::size_t units = (count + kUnit - 1) / kUnit;
  const std::size_t share = (units + parts - 1) / parts * kUnit;
  const std::size_t begin = std::min(count, share * index);
  return {begin, std::min(count, begin + share)};
}

PipelinedAllreduce::PipelinedAllreduce(Comm& comm, const void* send, void* recv, std::size_t count,
                                       DDL_Type type, DDL_Op op)
    : comm_(comm),
      host_(comm.host()),
      send_(static_cast<const std::byte*>(send)),
      recv_(static_cast<std::byte*>(recv)),
      count_(count),
      reduce_(reduce_function(kFull, type, op)),
      first_divisor_(op == DDL_OP_AVERAGE && is_16_bit(type) ? power_above(comm.size()) : 1.0),
      last_divisor_(op == DDL_OP_AVERAGE ? comm.size() / first_divisor_ : 1.0),
      width_(size_of(type)),
      lanes_(comm.num_lanes()),
      copy_out_(copy_function(count * width_)),
      arrived_(host_.arrived()),
      done_(host_.done()),
      slots_(host_.slots()),
      batch_(comm.transport()) {
  const std::size_t wanted = count * width_ / kWantedChunks;
  const std::size_t nbytes = std::clamp(wanted, kLeastChunk, kMostChunk);
  chunk_ = std::min(nbytes, host_.chunk_bytes()) / width_ / 64 * 64;
  chunk_ = std::max(chunk_, host_.chunk_bytes() / width_ < 64 ? std::size_t{1} : std::size_t{64});
  chunks_ = (count + chunk_ - 1) / chunk_;
}

void PipelinedAllreduce::run() {
  if (host_.rank() < lanes_) {
    std::size_t inbox = 0;
    for (const std::size_t c : {std::size_t{0}, chunks_ - 1}) {  // the last may be shorter
      inbox = std::max(inbox, comm_.plan(slice(c, host_.rank()).count())->inbox * width_);
    }
    std::byte* workspace = comm_.workspace(inbox * slots_.size());
    for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].inbox = workspace + i * inbox;
  }
  Patience patience(comm_.transport());
  while (released_ < chunks_) {
    bool has_moved = false;
    while (bring_next()) has_moved = true;
    while (start_next()) has_moved = true;
    has_moved |= batch_.poll([this](std::uint64_t id) { complete(id); });
    while (finish_next()) has_moved = true;
    while (release_next()) has_moved = true;
    if (has_moved) {
      patience.start_over();
    } else {
      patience.wait([this] { return missing_ranks(); });
    }
  }
}

bool PipelinedAllreduce::bring_next() {
  const std::size_t c = brought_;
  if (c == chunks_ || c - released_ == slots_.size()) return false;
  std::byte* input = host_.input(host_.rank(), static_cast<int>(slot_index(c)));
  const std::byte* from = send_ + begin(c) * width_;
  for (int lane = 0; lane < lanes_; ++lane) {
    const Span s = slice(c, lane);
    if (lane == host_.rank() || s.count() == 0) continue;  // ours is read where it is
    std::memcpy(input + s.begin * width_, from + s.begin * width_, s.count() * width_);
  }
  host_.post_arrived();
  ++brought_;
  return true;
}

bool PipelinedAllreduce::start_next() {
  const std::size_t c = started_;
  if (c == brought_) return false;
  if (!host_.all_arrived(arrived_ + static_cast<std::uint32_t>(c) + 1)) return false;
  ++started_;
  Slot& slot = slots_[slot_index(c)];
  slot.plan = nullptr;
  if (host_.rank() >= lanes_) return true;
  const Span s = slice(c, host_.rank());
  if (s.count() == 0) return true;
  reduce_on_host(c, s, &slot);
  slot.plan = comm_.plan(s.count());
  begin_steps(slot_index(c));
  return true;
}

bool PipelinedAllreduce::finish_next() {
  const std::size_t c = finished_;
  if (c == started_) return false;
  const Slot& slot = slots_[slot_index(c)];
  if (slot.plan) {
    if (slot.step < slot.plan->steps.size()) return false;
    const Span s = slice(c, host_.rank());
    std::byte* to = recv_ + (begin(c) + s.begin) * width_;
    if (to != slot.work) copy_out_(to, slot.work, s.count() * width_);
  }
  host_.post_done();
  ++finished_;
  return true;
}

bool PipelinedAllreduce::release_next() {
  const std::size_t c = released_;
  if (c == finished_ || slots_[slot_index(c)].sending > 0) return false;
  if (!host_.all_done(done_ + static_cast<std::uint32_t>(c) + 1)) return false;
  const std::byte* output = host_.output(static_cast<int>(slot_index(c)));
  std::byte* to = recv_ + begin(c) * width_;
  for (int lane = 0; lane < lanes_; ++lane) {
    const Span s = slice(c, lane);
    if (lane == host_.rank() || s.count() == 0) continue;
    copy_out_(to + s.begin * width_, output + s.begin * width_, s.count() * width_);
  }
  ++released_;
  return true;
}

// A rank that is alone on its host works in the caller's memory.
void PipelinedAllreduce::reduce_on_host(std::size_t c, Span s, Slot* slot) {
  const int index = static_cast<int>(slot_index(c));
  const std::byte* own = send_ + (begin(c) + s.begin) * width_;
  if (host_.size() == 1) {
    slot->work = recv_ + (begin(c) + s.begin) * width_;
    slot->own = own;
    if (first_divisor_ == 1.0) return;
  } else {
    slot->work = host_.output(index) + s.begin * width_;
  }
  inputs_.resize(host_.size());
  for (int i = 0; i < host_.size(); ++i) inputs_[i] = host_.input(i, index) + s.begin * width_;
  inputs_[host_.rank()] = own;
  reduce_(slot->work, inputs_.data(), host_.size(), s.count(), first_divisor_);
  slot->own = slot->work;
}

void PipelinedAllreduce::begin_steps(std::size_t index) {
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

// All receives of the chunk at once: what comes early needs no copy. A result's receive may be
// posted over a part that is still being sent: the result comes from those who got that part.
void PipelinedAllreduce::post_receives(std::size_t index) {
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

void PipelinedAllreduce::post_sends(std::size_t index) {
  Slot& slot = slots_[index];
  const std::vector<Host>& hosts = comm_.topology().hosts();
  const Step& step = slot.plan->steps[slot.step];
  const std::byte* from = slot.step == 0 ? slot.own : slot.work;
  for (const Transfer& part : step.sends) {
    batch_.send(from + part.span.begin * width_, part.span.count() * width_,
                hosts[part.host].ranks[host_.rank()], tag_of(index, step),
                make_id(index, kSent, 0));
    ++slot.sending;
  }
}

// Enters every step that nothing is missing for.
void PipelinedAllreduce::advance(std::size_t index) {
  Slot& slot = slots_[index];
  const std::vector<Step>& steps = slot.plan->steps;
  while (slot.step < steps.size() && slot.awaited[slot.step] == 0) {
    if (++slot.step == steps.size()) return;
    post_sends(index);
    const std::vector<std::size_t>& missing = slot.missing[slot.step];
    for (std::size_t r = 0; r < missing.size(); ++r) {
      if (missing[r] == 0) reduce(slot, steps[slot.step].reductions[r]);
    }
  }
}

// In the tree's order, whatever came first: the same sum in every run.
void PipelinedAllreduce::reduce(const Slot& slot, const Reduction& reduction) {
  const Span span = reduction.span;
  const std::byte* part = slot.inbox + reduction.inbox * width_;
  inputs_.clear();
  for (const int from : reduction.from) {
    if (from == comm_.host_index()) {
      inputs_.push_back((slot.step == 0 ? slot.own : slot.work) + span.begin * width_);
    } else {
      inputs_.push_back(part);
      part += span.count() * width_;
    }
  }
  const bool is_last = slot.step + 1 == slot.plan->steps.size() / 2;
  reduce_(slot.work + span.begin * width_, inputs_.data(), static_cast<int>(inputs_.size()),
          span.count(), is_last ? last_divisor_ : 1.0);
}

void PipelinedAllreduce::complete(std::uint64_t id) {
  const std::size_t index = id >> 40;
  const std::size_t step = id >> 32 & 0xff;
  const std::size_t reduction = id & 0xffffffff;
  Slot& slot = slots_[index];
  if (step == kSent) {
    --slot.sending;
    return;
  }
  --slot.awaited[step];
  if (reduction != kNoReduction && --slot.missing[step][reduction] == 0 && step == slot.step) {
    reduce(slot, slot.plan->steps[step].reductions[reduction]);
  }
  advance(index);
}

std::string PipelinedAllreduce::missing_ranks() const {
  const std::size_t arrived = started_ + (started_ < brought_ ? 1 : 0);
  const std::size_t done = released_ + (released_ < finished_ ? 1 : 0);
  const std::string here = host_.missing(arrived_ + static_cast<std::uint32_t>(arrived),
                                         done_ + static_cast<std::uint32_t>(done));
  const std::string there = batch_.describe_peers();
  return here + (here.empty() || there.empty() ? "" : ", ") + there;
}

}  // namespace ddl
