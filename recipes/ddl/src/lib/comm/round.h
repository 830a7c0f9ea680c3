// The rounds in which every host hears of all others: ceil(log2(hosts)) messages one after the
// other, at the distances 1, 2, 4 and so on.
#pragma once

namespace ddl {

// A power of two of hosts exchange in pairs (recursive doubling), so that both sides of a pair know
// the same. Other numbers pass it round: host i sends to i + distance (dissemination; Hensgen,
// Finkel and Manber 1988).
class Round {
 public:
  Round(int hosts, int me, int distance) : hosts_(hosts), me_(me), distance_(distance) {}

  bool is_pairwise() const { return (hosts_ & (hosts_ - 1)) == 0; }
  bool is_last() const { return 2 * distance_ >= hosts_; }
  int to() const { return is_pairwise() ? me_ ^ distance_ : (me_ + distance_) % hosts_; }
  int from() const { return is_pairwise() ? me_ ^ distance_ : before(me_, distance_); }

  // Before this round.
  bool has_heard_of(int who, int whom) const {
    if (is_pairwise()) return who / distance_ == whom / distance_;
    return before(who, whom) < distance_;
  }
  // What this host sends in this round, and what it gets.
  bool is_sent(int whom) const { return has_heard_of(me_, whom) && !has_heard_of(to(), whom); }
  bool is_received(int whom) const {
    return has_heard_of(from(), whom) && !has_heard_of(me_, whom);
  }

 private:
  int before(int host, int distance) const { return (host - distance + hosts_) % hosts_; }

  int hosts_;
  int me_;
  int distance_;
};

}  // namespace ddl
