#include "base/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "base/error.h"
#include "schedule/arrange.h"

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
      "-fusion_bytes 4096 -fusion_wait 2.5 -timeline /t/a.json");
  EXPECT_EQ(settings.mode, 'p');
  EXPECT_EQ(settings.dimensions, (std::vector<int>{6, 2, 1, 3}));
  EXPECT_EQ(settings.timeout, 1.5);
  EXPECT_EQ(settings.debug_level, 2);
  EXPECT_EQ(settings.dump_every, 100);
  EXPECT_EQ(settings.device_sync, 1);
  EXPECT_EQ(settings.rebind_every, 9);
  EXPECT_EQ(settings.fusion_bytes, 4096U);
  EXPECT_EQ(settings.fusion_wait_ms, 2.5);
  EXPECT_EQ(settings.timeline_file, "/t/a.json");
}

TEST(SettingsTest, SchedulesHaveWords) {
  EXPECT_EQ(parse_settings("").schedule, kAnySchedule);
  EXPECT_EQ(parse_settings("-schedule auto").schedule, kAnySchedule);
  EXPECT_EQ(parse_settings("-schedule direct").schedule, kDirect);
  EXPECT_EQ(parse_settings("--schedule halving").schedule, 2);
  EXPECT_EQ(parse_settings("-schedule radix:5").schedule, 5);
  EXPECT_EQ(parse_settings("-schedule ring").schedule, kRing);
  EXPECT_EQ(parse_settings("-schedule tree").schedule, kTree);
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
  EXPECT_EQ(error_of("-mode r:16777216x16777216x16777216x65536"),
            "-mode r:16777216x16777216x16777216x65536: describes more ranks than a job can have");
  EXPECT_NE(error_of("-timeout").find("-timeout needs a value"), std::string::npos);
  for (const char* bad :
       {"-timeout -1", "-timeout nan", "-timeout 1s", "-dbg_level 3", "-dev_sync x",
        "-dump_iter -1", "-mode r", "-mode r:", "-mode r:0", "-mode r:2x", "-mode rr:2",
        "-fusion_bytes -1", "-fusion_bytes 64K", "-fusion_wait -1", "-fusion_wait 1001",
        "-fusion_wait nan", "-mode x:2", "-mode r:1x1x1x1x1"}) {
    EXPECT_NE(error_of(bad), "no error") << bad;
  }
}

TEST(SettingsTest, TellsTheTimeoutOfARank) {
  EXPECT_EQ(timeout_of("", std::nullopt), kDefaultTimeout);
  EXPECT_EQ(timeout_of("", "7.5"), 7.5);
  EXPECT_EQ(timeout_of("-mode r:2 --timeout 3", "7.5"), 3);
  for (const char* bad : {"-timeout soon", "-timeout", "-colour red"}) {
    EXPECT_EQ(timeout_of(bad, "7.5"), kDefaultTimeout) << bad;
  }
  EXPECT_EQ(timeout_of("", "0"), kDefaultTimeout);
}

// A string with some of its bytes changed, lost, doubled or cut off.
std::string damaged(std::string text, std::mt19937& random) {
  for (unsigned i = 0; i < 1 + random() % 6; ++i) {
    const std::size_t at = random() % text.size();
    switch (random() % 5) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 9);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), random() % 20));
        break;
      case 3:
        text.resize(at + 1);
        break;
      default:
        text.insert(at, 1, "-:x. \t\n0123456789aeinf"[random() % 22]);
    }
    if (text.empty()) text = "-";
  }
  return text;
}

// What the library relies on, whatever was said.
void expect_usable(const Settings& settings, const std::string& options) {
  SCOPED_TRACE(options);
  EXPECT_TRUE(std::isfinite(settings.timeout) && settings.timeout > 0);
  EXPECT_LE(settings.fusion_bytes, std::size_t{1} << 30);
  EXPECT_TRUE(settings.fusion_wait_ms >= 0 && settings.fusion_wait_ms <= 1000);
  EXPECT_TRUE(settings.debug_level >= 0 && settings.debug_level <= 2);
  EXPECT_TRUE(settings.device_sync >= 0 && settings.device_sync <= 2);
  EXPECT_TRUE(settings.dump_every >= 0 && settings.rebind_every >= 0);
  EXPECT_TRUE(settings.schedule == kAnySchedule || settings.schedule == kDirect ||
              settings.schedule >= 2);
  EXPECT_EQ(settings.mode == 0, settings.dimensions.empty());
  EXPECT_LE(settings.dimensions.size(), 4U);
  for (const int size : settings.dimensions) EXPECT_TRUE(size >= 1 && size <= 1 << 24);
  try {
    check_mode(settings, 8);
    if (settings.mode != 0) {
      long product = 1;
      for (const int size : settings.dimensions) product *= size;
      EXPECT_EQ(product, 8);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), DDL_ERROR_ARGUMENT);
    EXPECT_EQ(std::string(error.what()).rfind("-mode ", 0), 0U) << error.what();
  }
}

// Whatever the bytes: settings that can be used, or one error that says what it is about.
TEST(SettingsTest, SurvivesDamagedOptions) {
  const std::string good[] = {
      "-mode p:6x2x1x3",
      "-mode b:4x2 -timeout 1.5 --schedule radix:5 -deterministic 1",
      "-dbg_level 2 -dump_iter 100 -dev_sync 1 -rebind_iter 9 -fusion_bytes 4096 -fusion_wait 2.5",
      "-timeline /some/where.json -dump_iter 1",
      "-topology /some/where.yaml -mode r:2x2x2",
  };
  const std::string starts[] = {"DDL options: unknown word '",
                                "DDL options: -",
                                "-mode",
                                "-schedule",
                                "-timeout: expected a number",
                                "-fusion_wait: expected a number",
                                "-fusion_bytes: expected a whole",
                                "-dbg_level: expected a whole",
                                "-dump_iter: expected a whole",
                                "-dev_sync: expected a whole",
                                "-rebind_iter: expected a whole",
                                "-deterministic: expected a whole"};
  unsigned taken = 0;
  unsigned refused = 0;
  for (unsigned seed = 0; seed < 20'000; ++seed) {
    std::mt19937 random(seed);
    const std::string options = damaged(good[seed % std::size(good)], random);
    try {
      expect_usable(parse_settings(options), options);
      ++taken;
    } catch (const Error& error) {
      ++refused;
      const std::string text = error.what();
      EXPECT_EQ(error.code(), DDL_ERROR_ARGUMENT) << options;
      EXPECT_TRUE(std::any_of(std::begin(starts), std::end(starts),
                              [&](const std::string& start) { return text.rfind(start, 0) == 0; }))
          << options << ": " << text;
    }
  }
  // The damage is neither none nor everything.
  EXPECT_GT(taken, 500U);
  EXPECT_GT(refused, 5'000U);
}

}  // namespace
}  // namespace ddl
