// The latest of many things, in memory that is bounded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddl {

template <class Item>
class Ring {
 public:
  // All memory is reserved here: push() takes none.
  explicit Ring(std::size_t capacity) : capacity_(capacity) { items_.reserve(capacity); }

  void push(const Item& item) {
    if (items_.size() < capacity_) {
      items_.push_back(item);
    } else {
      items_[num_pushed_ % capacity_] = item;
    }
    ++num_pushed_;
  }
  // Those that later ones have taken the place of.
  std::uint64_t num_dropped() const { return num_pushed_ - items_.size(); }
  // The oldest first.
  std::vector<Item> items() const {
    std::vector<Item> ordered(items_);
    const auto oldest = ordered.begin() + static_cast<std::ptrdiff_t>(num_pushed_ % capacity_);
    if (num_dropped() > 0) std::rotate(ordered.begin(), oldest, ordered.end());
    return ordered;
  }

 private:
  std::size_t capacity_;
  std::vector<Item> items_;
  std::uint64_t num_pushed_ = 0;
};

}  // namespace ddl
