// The way of a piece through the children of a group, to the child that owns its sum.
#pragma once

#include <cstddef>
#include <vector>

#include "topology/tree.h"

namespace ddl {

// The part of one child in moving a piece. A round begins for a child when it has got all messages
// of the round before.
struct Route {
  int reduces = -1;               // the round in which it adds up `from`; -1: nothing comes to it
  std::vector<std::size_t> from;  // children, in order; itself among them
  int sends = -1;                 // the round in which it sends its sum to `to`; -1: the owner
  std::size_t to = 0;
};

// kDirect: all send to the owner at once. One round.
// kRing: from the owner's right neighbour around to the owner, each adding its part. The pieces of
// all owners go around at the same time, one neighbour on each side: a link never has two senders.
// There are k - 1 rounds (Patarasuk and Yuan, 2009).
// kTree: up one of two binary trees, whose roots are the only owners. An inner node of one tree is
// a leaf of the other, so nobody adds more than two parts in both together. There are ceil(log2(k))
// rounds of the whole piece each (Sanders, Speck and Traff, "Two-tree algorithms for full
// bandwidth broadcast, reduction and scan", 2009).
Route route(Exchange exchange, std::size_t children, std::size_t owner, std::size_t me);

int num_rounds(Exchange exchange, std::size_t children);

// The share of every child in the sums of a group with trees.
std::vector<double> tree_shares(std::size_t children);

}  // namespace ddl
