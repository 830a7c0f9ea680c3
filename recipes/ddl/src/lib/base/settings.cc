#include "base/settings.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/schedule_kinds.h"

namespace ddl {
namespace {

constexpr char kValidOptions[] =
    "valid options are -mode X:AxBxC (X one of b n r m c p), -topology FILE, "
    "-schedule auto|direct|halving|radix:R|ring|tree, -timeout SECONDS, -fusion_bytes N, "
    "-fusion_wait MS, "
    "-deterministic 0|1, -dbg_level 0|1|2, "
    "-dump_iter N, -timeline FILE, -dev_sync 0|1|2, -rebind_iter N";

long parse_integer(const std::string& name, const std::string& text, long low, long high) {
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0 || value < low || value > high) {
    fail(DDL_ERROR_ARGUMENT, name, ": expected a whole number from ", low, " to ", high, ", got '",
         text, "'");
  }
  return value;
}

double parse_seconds(const std::string& name, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value <= 0) {
    fail(DDL_ERROR_ARGUMENT, name, ": expected a number of seconds above 0, got '", text, "'");
  }
  return value;
}

double parse_milliseconds(const std::string& name, const std::string& text) {
  constexpr double kMost = 1000;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0 && value <= kMost)) {
    fail(DDL_ERROR_ARGUMENT, name, ": expected a number of milliseconds from 0 to ", kMost,
         ", got '", text, "'");
  }
  return value;
}

std::size_t parse_fusion_bytes(const std::string& name, const std::string& text) {
  return static_cast<std::size_t>(parse_integer(name, text, 0, 1L << 30));
}

void parse_mode(const std::string& text, Settings* settings) {
  if (text.size() < 3 || std::strchr("bnrmcp", text[0]) == nullptr || text[1] != ':') {
    fail(DDL_ERROR_ARGUMENT,
         "-mode: expected X:AxBxC with X one of b n r m c p, as in 'r:4x2x1', got '", text, "'");
  }
  settings->mode = text[0];
  settings->dimensions.clear();
  std::istringstream sizes(text.substr(2));
  long product = 1;  // ranks are counted by an int
  for (std::string size; std::getline(sizes, size, 'x');) {
    settings->dimensions.push_back(
        static_cast<int>(parse_integer("-mode " + text, size, 1, 1 << 24)));
    product *= settings->dimensions.back();
    if (product > std::numeric_limits<int>::max()) {
      fail(DDL_ERROR_ARGUMENT, "-mode ", text, ": describes more ranks than a job can have");
    }
  }
  if (text.back() == 'x' || settings->dimensions.size() > 4) {
    fail(DDL_ERROR_ARGUMENT, "-mode ", text, ": expected one to four sizes separated by x");
  }
}

int parse_int(const std::string& name, const std::string& text, long high) {
  return static_cast<int>(parse_integer(name, text, 0, high));
}

}  // namespace

int parse_schedule(const std::string& text) {
  if (text == "auto") return kAnySchedule;
  if (text == "direct") return kDirect;
  if (text == "halving") return 2;
  if (text == "ring") return kRing;
  if (text == "tree") return kTree;
  const std::string prefix = "radix:";
  if (text.rfind(prefix, 0) != 0) {
    fail(DDL_ERROR_ARGUMENT,
         "-schedule: expected auto, direct, halving, radix:R, ring or tree, got '", text, "'");
  }
  return static_cast<int>(
      parse_integer("-schedule " + text, text.substr(prefix.size()), 2, 1'000'000));
}

std::string name_of_schedule(int schedule) {
  if (schedule == kDirect) return "direct";
  if (schedule == kRing) return "ring";
  if (schedule == kTree) return "tree";
  if (schedule == 2) return "halving";
  return "radix:" + std::to_string(schedule);
}

namespace {

constexpr long kMany = 1'000'000'000;

using Setter = void (*)(const std::string& name, const std::string& value, Settings* settings);

// The meaning of each word of the options; kValidOptions says it to people.
const std::map<std::string, Setter>& options_by_name() {
  using Text = const std::string&;
  static const std::map<std::string, Setter> table = {
      {"-mode", [](Text, Text value, Settings* s) { parse_mode(value, s); }},
      {"-topology", [](Text, Text value, Settings* s) { s->topology_file = value; }},
      {"-schedule", [](Text, Text value, Settings* s) { s->schedule = parse_schedule(value); }},
      {"-timeout",
       [](Text name, Text value, Settings* s) { s->timeout = parse_seconds(name, value); }},
      {"-deterministic", [](Text name, Text value,
                            Settings* s) { s->is_deterministic = parse_int(name, value, 1) == 1; }},
      {"-fusion_bytes", [](Text name, Text value,
                           Settings* s) { s->fusion_bytes = parse_fusion_bytes(name, value); }},
      {"-fusion_wait", [](Text name, Text value,
                          Settings* s) { s->fusion_wait_ms = parse_milliseconds(name, value); }},
      {"-dbg_level",
       [](Text name, Text value, Settings* s) { s->debug_level = parse_int(name, value, 2); }},
      {"-dump_iter",
       [](Text name, Text value, Settings* s) { s->dump_every = parse_int(name, value, kMany); }},
      {"-timeline", [](Text, Text value, Settings* s) { s->timeline_file = value; }},
      {"-dev_sync",
       [](Text name, Text value, Settings* s) { s->device_sync = parse_int(name, value, 2); }},
      {"-rebind_iter",
       [](Text name, Text value, Settings* s) { s->rebind_every = parse_int(name, value, kMany); }},
  };
  return table;
}

void parse_options(const std::string& options, Settings* settings) {
  std::istringstream words(options);
  for (std::string word; words >> word;) {
    // DDL's tools take -option and --option alike.
    const std::string name = word.rfind("--", 0) == 0 ? word.substr(1) : word;
    const auto option = options_by_name().find(name);
    std::string value;
    if (option == options_by_name().end()) {
      fail(DDL_ERROR_ARGUMENT, "DDL options: unknown word '", word, "'; ", kValidOptions);
    }
    if (!(words >> value)) {
      fail(DDL_ERROR_ARGUMENT, "DDL options: ", word, " needs a value; ", kValidOptions);
    }
    option->second(name, value, settings);
  }
}

}  // namespace

Settings parse_settings(const std::string& options) {
  Settings settings;
  if (const char* text = std::getenv("DDL_TIMEOUT")) {
    settings.timeout = parse_seconds("DDL_TIMEOUT", text);
  }
  if (const char* text = std::getenv("DDL_FUSION_BYTES")) {
    settings.fusion_bytes = parse_fusion_bytes("DDL_FUSION_BYTES", text);
  }
  if (const char* text = std::getenv("DDL_FUSION_WAIT")) {
    settings.fusion_wait_ms = parse_milliseconds("DDL_FUSION_WAIT", text);
  }
  if (const char* text = std::getenv("DDL_TIMELINE")) settings.timeline_file = text;
  if (const char* text = std::getenv("DDL_SHM_CHUNK")) {
    settings.chunk_bytes =
        static_cast<std::size_t>(parse_integer("DDL_SHM_CHUNK", text, 64, 1L << 30));
  }
  if (const char* text = std::getenv("DDL_FAKE_HOSTS")) {
    settings.fake_hosts = parse_int("DDL_FAKE_HOSTS", text, kMany);
  }
  if (const char* text = std::getenv("DDL_FAKE_SOCKETS")) {
    settings.fake_sockets = parse_int("DDL_FAKE_SOCKETS", text, kMany);
  }
  if (const char* text = std::getenv("DDL_FAKE_FAR")) {
    settings.fake_far = parse_int("DDL_FAKE_FAR", text, 1) == 1;
  }

  parse_options(options, &settings);
  return settings;
}

double timeout_of(const std::string& options, const std::optional<std::string>& variable) {
  Settings settings;
  try {
    if (variable) settings.timeout = parse_seconds("DDL_TIMEOUT", *variable);
    parse_options(options, &settings);
  } catch (const Error&) {
    return kDefaultTimeout;
  }
  return settings.timeout;
}

void check_mode(const Settings& settings, int size) {
  if (settings.mode == 0) return;
  long product = 1;
  std::string sizes;
  for (const int dimension : settings.dimensions) {
    product *= dimension;
    sizes += (sizes.empty() ? "" : "x") + std::to_string(dimension);
  }
  if (product != size) {
    fail(DDL_ERROR_ARGUMENT, "-mode ", settings.mode, ":", sizes, " describes ", product,
         " ranks, but the job has ", size, "; make the product equal or leave -mode out");
  }
}

}  // namespace ddl
