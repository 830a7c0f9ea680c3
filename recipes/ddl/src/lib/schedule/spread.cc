#include "schedule/spread.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "schedule/shares.h"

namespace ddl {
namespace {

constexpr int kNobody = -1;

// The hosts below a node, and the share of the group's data that each takes: parts of 1.
struct Leaves {
  std::vector<int> hosts;
  std::vector<double> shares;
};

void collect(const Node& node, std::vector<int>* hosts, std::vector<double>* rates) {
  if (node.is_host()) {
    hosts->push_back(node.host);
    rates->push_back(node.bandwidth());
  }
  for (const Node& child : node.children) collect(child, hosts, rates);
}

Leaves leaves_of(const Node& node) {
  Leaves leaves;
  std::vector<double> rates;
  collect(node, &leaves.hosts, &rates);
  leaves.shares = balance_shares(rates, 0);
  return leaves;
}

// Deals out `count` elements in order, to hosts by their shares, on borders of `unit` elements.
class Dealer {
 public:
  Dealer(const Leaves& leaves, std::size_t count, std::size_t unit)
      : leaves_(&leaves), count_(count), unit_(unit), sum_(leaves.shares[0]) {
    skip_to(0);
  }

  int host() const { return leaves_->hosts[at_]; }
  std::size_t end() const { return end_; }  // of this host's part
  void skip_to(std::size_t begin) {
    end_ = border();
    while (end_ <= begin && at_ + 1 < leaves_->hosts.size()) {
      sum_ += leaves_->shares[++at_];
      end_ = border();
    }
  }

 private:
  std::size_t border() const {
    if (at_ + 1 == leaves_->hosts.size()) return count_;
    const std::size_t units = (count_ + unit_ - 1) / unit_;
    const auto share = std::llround(sum_ * static_cast<double>(units));
    return std::min(count_, static_cast<std::size_t>(share) * unit_);
  }

  const Leaves* leaves_;
  std::size_t count_;
  std::size_t unit_;
  std::size_t at_ = 0;
  double sum_;
  std::size_t end_ = 0;
};

class Spreader {
 public:
  // `root`: the host that has all already, as the only one; or kNobody.
  Spreader(int host, int root, std::size_t unit) : me_(host), root_(root), unit_(unit) {}

  // The messages of one step, and for each span of this host, who gets it in every child.
  struct Exchange {
    Step step;
    std::vector<Reduction> ours;
  };

  void visit(const Node& node, Pieces pieces, int depth) {
    if (node.is_host()) return;
    std::vector<Leaves> children;
    for (const Node& child : node.children) children.push_back(leaves_of(child));
    const std::size_t mine = child_of(children, me_);
    const std::size_t of_root = child_of(children, root_);
    if (of_root < children.size()) pieces = scatter(node, children, pieces, 2 * depth);
    Pieces inside = exchange(children, mine, pieces, 2 * depth + 1);
    visit(node.children[mine], std::move(inside), depth + 1);
  }

  std::vector<Exchange> take() { return std::move(exchanges_); }

 private:
  static std::size_t child_of(const std::vector<Leaves>& children, int host) {
    std::size_t i = 0;
    const auto holds = [host](const Leaves& child) {
      return std::find(child.hosts.begin(), child.hosts.end(), host) != child.hosts.end();
    };
    while (i < children.size() && !holds(children[i])) ++i;
    return i;
  }

  // Sends the parts that only the root has to all children in equal parts; the root keeps its own
  // child's.
  Pieces scatter(const Node& node, const std::vector<Leaves>& children, const Pieces& pieces,
                 int tag) {
    Leaves all;
    std::vector<double> rates;
    for (const Node& child : node.children) rates.push_back(child.bandwidth());
    const std::vector<double> shares = balance_shares(rates, 0);
    for (std::size_t j = 0; j < children.size(); ++j) {
      for (std::size_t i = 0; i < children[j].hosts.size(); ++i) {
        const bool is_root_child = j == child_of(children, root_);
        all.hosts.push_back(is_root_child ? root_ : children[j].hosts[i]);
        all.shares.push_back(shares[j] * children[j].shares[i]);
      }
    }
    std::size_t count = 0;
    for (const Piece& piece : pieces) count += piece.host == root_ ? piece.span.count() : 0;
    Dealer dealer(all, count, unit_);
    Exchange result;
    result.step.tag = tag;
    Pieces dealt;
    std::size_t at = 0;
    for (const Piece& piece : pieces) {
      if (piece.host != root_) {
        dealt.push_back(piece);
        continue;
      }
      for (std::size_t begin = piece.span.begin; begin < piece.span.end;) {
        dealer.skip_to(at);
        const std::size_t n = std::min(piece.span.end - begin, dealer.end() - at);
        const Span span{begin, begin + n};
        const int to = dealer.host();
        if (to != root_ && me_ == root_) result.step.sends.push_back({to, span});
        if (to == me_ && me_ != root_) result.step.recvs.push_back({root_, span});
        dealt.push_back({span, to});
        begin += n;
        at += n;
      }
    }
    exchanges_.push_back(std::move(result));
    return dealt;
  }

  // Returns the pieces of the hosts inside this host's child afterwards.
  Pieces exchange(const std::vector<Leaves>& children, std::size_t mine, const Pieces& pieces,
                  int tag) {
    const std::size_t k = children.size();
    std::vector<std::size_t> home(pieces.size());
    std::vector<std::size_t> counts(k, 0);
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      home[p] = child_of(children, pieces[p].host);
      counts[home[p]] += pieces[p].span.count();
    }
    // dealers[i][j] deals the data of child i to the hosts of child j.
    std::vector<std::vector<Dealer>> dealers(k);
    for (std::size_t i = 0; i < k; ++i) {
      for (std::size_t j = 0; j < k; ++j) dealers[i].emplace_back(children[j], counts[i], unit_);
    }
    std::vector<std::size_t> at(k, 0);
    Exchange result;
    result.step.tag = tag;
    Pieces inside;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      const std::size_t i = home[p];
      for (std::size_t begin = pieces[p].span.begin; begin < pieces[p].span.end;) {
        // Cut wherever a receiver changes in any child: then all children's parts fit together.
        std::size_t n = pieces[p].span.end - begin;
        for (std::size_t j = 0; j < k; ++j) {
          if (j == i) continue;
          dealers[i][j].skip_to(at[i]);
          n = std::min(n, dealers[i][j].end() - at[i]);
        }
        const Span span{begin, begin + n};
        if (pieces[p].host == me_) {
          result.ours.push_back({span, {}, 0});
          for (std::size_t j = 0; j < k; ++j) {
            const int to = j == i ? me_ : dealers[i][j].host();
            result.ours.back().from.push_back(to);
            if (to != me_ && to != root_) result.step.sends.push_back({to, span});
          }
        }
        const int receiver = i == mine ? pieces[p].host : dealers[i][mine].host();
        if (i != mine && receiver == me_ && me_ != root_) {
          result.step.recvs.push_back({pieces[p].host, span});
        }
        inside.push_back({span, receiver});
        begin += n;
        at[i] += n;
      }
    }
    exchanges_.push_back(std::move(result));
    return inside;
  }

  int me_;
  int root_;
  std::size_t unit_;
  std::vector<Exchange> exchanges_;
};

Plan spread(Spreader* spreader) {
  Plan plan;
  for (Spreader::Exchange& exchange : spreader->take()) {
    plan.steps.push_back(std::move(exchange.step));
  }
  return plan;
}

}  // namespace

Plan plan_allgather(const Node& tree, int host, const Pieces& owned, std::size_t unit) {
  Spreader spreader(host, kNobody, unit);
  spreader.visit(tree, owned, 0);
  return spread(&spreader);
}

Plan plan_broadcast(const Node& tree, int host, int root, std::size_t count, std::size_t unit) {
  Spreader spreader(host, root, unit);
  spreader.visit(tree, {{{0, count}, root}}, 0);
  return spread(&spreader);
}

Plan plan_reduce_scatter(const Node& tree, int host, const Pieces& owned, std::size_t unit) {
  Spreader spreader(host, kNobody, unit);
  spreader.visit(tree, owned, 0);
  std::vector<Spreader::Exchange> exchanges = spreader.take();
  Plan plan;
  for (std::size_t i = exchanges.size(); i-- > 0;) {
    Step step;
    step.tag = exchanges[i].step.tag;
    step.sends = std::move(exchanges[i].step.recvs);
    step.reductions = std::move(exchanges[i].ours);
    for (Reduction& reduction : step.reductions) {
      reduction.inbox = plan.inbox;
      plan.inbox += reduction.span.count() * (reduction.from.size() - 1);
    }
    plan.steps.push_back(std::move(step));
  }
  plan.reducing = plan.steps.size();
  return plan;
}

}  // namespace ddl
