#include "settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "error.h"
#include "schedule/radix.h"

namespace ddl {
namespace {

std::string error_of(const std::string& options) {
  try {
    parse_settings(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), DDL_ERROR_ARGUMENT);
    return error.what();
  }
  return "no error";
}

TEST(SettingsTest, DefaultsWhenNothingIsSaid) {
  const Settings settings = parse_settings("  ");
  EXPECT_EQ(settings.mode, 0);
  EXPECT_EQ(settings.timeout, 60.0);
  EXPECT_NO_THROW(check_mode(settings, 17));
}

TEST(SettingsTest, ReadsEveryOption) {
  const Settings settings = parse_settings(
      "-mode p:6x2x1x3 --timeout 1.5 -dbg_level 2 -dump_iter 100 -dev_sync 1 -rebind_iter 9 "
      "-fusion_bytes 4096 -fusion_wait 2.5");
  EXPECT_EQ(settings.mode, 'p');
  EXPECT_EQ(settings.dimensions, (std::vector<int>{6, 2, 1, 3}));
  EXPECT_EQ(settings.timeout, 1.5);
  EXPECT_EQ(settings.debug_level, 2);
  EXPECT_EQ(settings.dump_every, 100);
  EXPECT_EQ(settings.device_sync, 1);
  EXPECT_EQ(settings.rebind_every, 9);
  EXPECT_EQ(settings.fusion_bytes, 4096U);
  EXPECT_EQ(settings.fusion_wait_ms, 2.5);
}

TEST(SettingsTest, SchedulesAreRadixes) {
  EXPECT_EQ(parse_settings("").radix, kAnyRadix);
  EXPECT_EQ(parse_settings("-schedule auto").radix, kAnyRadix);
  EXPECT_EQ(parse_settings("-schedule direct").radix, kDirect);
  EXPECT_EQ(parse_settings("--schedule halving").radix, 2);
  EXPECT_EQ(parse_settings("-schedule radix:5").radix, 5);
  EXPECT_EQ(parse_settings("-schedule ring").radix, kRing);
  EXPECT_EQ(parse_settings("-schedule tree").radix, kTree);
  EXPECT_EQ(error_of("-schedule fast"),
            "-schedule: expected auto, direct, halving, radix:R, ring or tree, got 'fast'");
  EXPECT_EQ(error_of("-schedule radix:1"),
            "-schedule radix:1: expected a whole number from 2 to 1000000, got '1'");
}

TEST(SettingsTest, TheOptionWinsOverTheVariable) {
  setenv("DDL_TIMEOUT", "5", 1);
  EXPECT_EQ(parse_settings("").timeout, 5.0);
  EXPECT_EQ(parse_settings("-timeout 6").timeout, 6.0);
  unsetenv("DDL_TIMEOUT");
  setenv("DDL_FUSION_BYTES", "0", 1);
  setenv("DDL_FUSION_WAIT", "0", 1);
  EXPECT_EQ(parse_settings("").fusion_bytes, 0U);
  EXPECT_EQ(parse_settings("").fusion_wait_ms, 0.0);
  EXPECT_EQ(parse_settings("-fusion_bytes 1").fusion_bytes, 1U);
  EXPECT_EQ(parse_settings("--fusion_wait 1").fusion_wait_ms, 1.0);
  unsetenv("DDL_FUSION_BYTES");
  unsetenv("DDL_FUSION_WAIT");
}

TEST(SettingsTest, TheProductMustBeTheNumberOfRanks) {
  const Settings settings = parse_settings("-mode b:4x2x3");
  EXPECT_NO_THROW(check_mode(settings, 24));
  try {
    check_mode(settings, 8);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "-mode b:4x2x3 describes 24 ranks, but the job has 8; make the product equal or "
                 "leave -mode out");
  }
}

TEST(SettingsTest, NamesWhatItDoesNotUnderstand) {
  EXPECT_NE(error_of("-mode r:2 fast").find("unknown word 'fast'; valid options are -mode"),
            std::string::npos);
  EXPECT_NE(error_of("-timeout").find("-timeout needs a value"), std::string::npos);
  for (const char* bad :
       {"-timeout -1", "-timeout nan", "-timeout 1s", "-dbg_level 3", "-dev_sync x",
        "-dump_iter -1", "-mode r", "-mode r:", "-mode r:0", "-mode r:2x", "-mode rr:2",
        "-fusion_bytes -1", "-fusion_bytes 64K", "-fusion_wait -1", "-fusion_wait 1001",
        "-fusion_wait nan", "-mode x:2", "-mode r:1x1x1x1x1"}) {
    EXPECT_NE(error_of(bad), "no error") << bad;
  }
}

}  // namespace
}  // namespace ddl
