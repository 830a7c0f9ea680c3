#include <gtest/gtest.h>

#include "async/group.h"

namespace ddl {
namespace {

alignas(8) std::byte memory[1 << 10];
const Arguments* const no_allreduce = nullptr;

// `count` floats summed in place, `offset` bytes into the memory.
Arguments floats(std::size_t count, std::size_t offset) {
  return {memory + offset, memory + offset, count, DDL_TYPE_FLOAT, DDL_OP_SUM};
}

TEST(FusionGroupTest, GrowsUntilItIsFull) {
  Group group(64);
  const Arguments a = floats(8, 0);
  const Arguments b = floats(7, 32);
  const Arguments c = floats(1, 60);
  group.add(&a);
  group.add(&b);
  EXPECT_EQ(group.size(), 2U);
  EXPECT_FALSE(group.is_complete());
  group.add(&c);
  EXPECT_EQ(group.size(), 3U);
  EXPECT_TRUE(group.is_complete());
  group.add(&c);
  EXPECT_EQ(group.size(), 3U);
}

TEST(FusionGroupTest, EndsBeforeWhatDoesNotFit) {
  const Arguments first = floats(8, 0);
  const Arguments doubles{memory + 64, memory + 64, 1, DDL_TYPE_DOUBLE, DDL_OP_SUM};
  const Arguments largest{memory + 64, memory + 64, 1, DDL_TYPE_FLOAT, DDL_OP_MAX};
  const Arguments too_much = floats(9, 64);
  const Arguments large = floats(16, 64);
  for (const Arguments* next : {&doubles, &largest, &too_much, &large, no_allreduce}) {
    Group group(64);
    group.add(&first);
    group.add(next);
    EXPECT_EQ(group.size(), 1U);
    EXPECT_TRUE(group.is_complete());
  }
}

TEST(FusionGroupTest, WhatCannotBeFusedIsAlone) {
  const Arguments one = floats(1, 0);
  const Arguments full = floats(16, 0);
  for (const Arguments* first : {&full, no_allreduce}) {
    Group group(64);
    group.add(first);
    EXPECT_EQ(group.size(), 1U);
    EXPECT_TRUE(group.is_complete());
  }
  Group off(0);
  off.add(&one);
  EXPECT_TRUE(off.is_complete());
}

TEST(FusionGroupTest, NoMemberReadsWhatAnotherWrites) {
  const Arguments first = floats(4, 0);
  const Arguments again = floats(4, 0);
  const Arguments reads_end{memory + 12, memory + 64, 4, DDL_TYPE_FLOAT, DDL_OP_SUM};
  const Arguments behind{memory + 16, memory + 64, 4, DDL_TYPE_FLOAT, DDL_OP_SUM};
  for (const Arguments* next : {&again, &reads_end}) {
    Group group(64);
    group.add(&first);
    group.add(next);
    EXPECT_EQ(group.size(), 1U);
  }
  Group group(64);
  group.add(&first);
  group.add(&behind);
  EXPECT_EQ(group.size(), 2U);
}

TEST(FusionGroupTest, NothingFitsAnywhere) {
  const Arguments nothing{nullptr, nullptr, 0, DDL_TYPE_FLOAT, DDL_OP_SUM};
  Group group(64);
  group.add(&nothing);
  group.add(&nothing);
  EXPECT_EQ(group.size(), 2U);
  EXPECT_FALSE(group.is_complete());
}

}  // namespace
}  // namespace ddl
