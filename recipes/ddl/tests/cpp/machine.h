// All hosts' plans carried out in one process.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/plan.h"

namespace ddl {

using Values = std::vector<long>;

inline Values cut(const Values& values, Span span) {
  return {values.begin() + static_cast<long>(span.begin),
          values.begin() + static_cast<long>(span.end)};
}

class Machine {
 public:
  // plans[h] and data[h] are host h's. Out of place, sums and results are made beside the data.
  Machine(std::vector<Plan> plans, std::vector<Values> data, bool out_of_place = false)
      : plans_(std::move(plans)), given_(std::move(data)), data_(given_) {
    for (Values& values : data_) {
      if (out_of_place) values.assign(values.size(), kNothing);
    }
  }

  void run() {
    std::vector<std::size_t> step(plans_.size(), 0);
    bool has_moved = true;
    std::vector<bool> has_sent(plans_.size(), false);
    while (has_moved) {
      has_moved = false;
      for (std::size_t h = 0; h < plans_.size(); ++h) {
        if (step[h] == plans_[h].steps.size()) continue;
        const Step& now = plans_[h].steps[step[h]];
        if (!has_sent[h]) {
          for (const Transfer& part : now.sends) {
            const Values& from = part.is_given ? given_[h] : data_[h];
            inbox_[{static_cast<int>(h), part.host, now.tag}].push_back(cut(from, part.span));
            bytes_ += part.span.count();
          }
          has_sent[h] = true;
          has_moved = true;
        }
        if (!can_receive(static_cast<int>(h), now)) continue;
        receive(static_cast<int>(h), now, step[h] < plans_[h].given ? given_[h] : data_[h]);
        ++step[h];
        has_sent[h] = false;
        has_moved = true;
      }
    }
    for (std::size_t h = 0; h < plans_.size(); ++h) EXPECT_EQ(step[h], plans_[h].steps.size());
    for (const auto& [pair, messages] : inbox_) EXPECT_TRUE(messages.empty());
  }

  const Values& result(int h) const { return data_[h]; }
  std::size_t elements_sent() const { return bytes_; }

 private:
  // How many messages the step takes from each host.
  static std::map<int, std::size_t> wanted(int me, const Step& step) {
    std::map<int, std::size_t> from;
    for (const Transfer& part : step.recvs) ++from[part.host];
    for (const Reduction& reduction : step.reductions) {
      for (const int h : reduction.from) {
        if (h != me) ++from[h];
      }
    }
    return from;
  }

  bool can_receive(int me, const Step& step) {
    for (const auto& [from, n] : wanted(me, step)) {
      if (inbox_[{from, me, step.tag}].size() < n) return false;
    }
    return true;
  }

  Values take(int from, int me, int tag, Span span) {
    std::vector<Values>& queue = inbox_[{from, me, tag}];
    Values values = queue.front();
    queue.erase(queue.begin());
    EXPECT_EQ(values.size(), span.count());
    return values;
  }

  // `own`: what this host adds.
  void receive(int me, const Step& step, const Values& own) {
    Values& mine = data_[me];
    for (const Reduction& reduction : step.reductions) {
      const Values ours = cut(own, reduction.span);
      std::copy(ours.begin(), ours.end(), mine.begin() + static_cast<long>(reduction.span.begin));
      EXPECT_EQ(std::count(reduction.from.begin(), reduction.from.end(), me), 1);
      for (const int from : reduction.from) {
        if (from == me) continue;
        const Values part = take(from, me, step.tag, reduction.span);
        for (std::size_t i = 0; i < part.size(); ++i) mine[reduction.span.begin + i] += part[i];
      }
    }
    for (const Transfer& part : step.recvs) {
      const Values values = take(part.host, me, step.tag, part.span);
      std::copy(values.begin(), values.end(), mine.begin() + static_cast<long>(part.span.begin));
    }
  }

  static constexpr long kNothing = -1'000'000'000;

  std::vector<Plan> plans_;
  std::vector<Values> given_;  // by the caller, not to be changed
  std::vector<Values> data_;   // sums and results
  std::map<std::tuple<int, int, int>, std::vector<Values>> inbox_;  // from, to, tag
  std::size_t bytes_ = 0;
};

}  // namespace ddl
