#include "transport/process.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace ddl {
namespace {

// In clock ticks since boot; 0 when the process has ended. Read as its first thread's: qemu's user
// mode answers for /proc/PID/stat of the asking process itself, with another time.
std::uint64_t start_time_of(pid_t pid) {
  const std::string number = std::to_string(pid);
  std::ifstream file("/proc/" + number + "/task/" + number + "/stat");
  std::string text;
  std::getline(file, text);
  // The last bracket: the program's name stands in brackets, and may have some itself.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  fields >> field;  // 3: state
  if (field == "Z" || field == "X") return 0;
  for (int i = 4; i <= 22; ++i) fields >> field;
  return std::strtoull(field.c_str(), nullptr, 10);
}

}  // namespace

ProcessName ProcessName::of(pid_t pid) {
  const std::uint64_t start = start_time_of(pid);
  if (start == 0) return ProcessName();
  return ProcessName(start << kPidBits | static_cast<std::uint64_t>(pid));
}

ProcessName ProcessName::own() { return of(getpid()); }

bool ProcessName::has_ended() const { return word_ != 0 && of(pid()).word_ != word_; }

}  // namespace ddl
