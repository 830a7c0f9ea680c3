#include "options.h"

#include <cstdlib>
#include <map>
#include <stdexcept>

namespace ddl::stage {
namespace {

std::uint64_t number(const std::string& name, const std::string& text) {
  if (text.empty() || text.size() > 18 ||
      text.find_first_not_of("0123456789") != std::string::npos) {
    throw std::invalid_argument(name + " " + text + ": not a whole number");
  }
  return std::strtoull(text.c_str(), nullptr, 10);
}

}  // namespace

Options read_options(int argc, char** argv) {
  Options options;
  std::map<std::string, std::string> said;
  for (int at = 1; at < argc; at += 2) {
    if (at + 1 == argc) throw std::invalid_argument(std::string(argv[at]) + " needs a value");
    said[argv[at]] = argv[at + 1];
  }
  for (const char* name :
       {"--image", "--sha256", "--size", "--unpacked", "--files", "--place", "--name", "--keep"}) {
    if (!said.count(name)) throw std::invalid_argument(std::string(name) + " is missing");
  }
  if (said.size() != 8) throw std::invalid_argument("it is called by ddlrun -stage");
  options.image = said["--image"];
  options.sha256 = said["--sha256"];
  options.size = number("--size", said["--size"]);
  options.unpacked = number("--unpacked", said["--unpacked"]);
  options.files = number("--files", said["--files"]);
  options.place = said["--place"];
  options.name = said["--name"];
  options.keep = static_cast<double>(number("--keep", said["--keep"]));
  if (options.place.empty() || options.place[0] != '/') {
    throw std::invalid_argument("--place " + options.place + ": not an absolute path");
  }
  if (options.name.empty() || options.name[0] == '.' ||
      options.name.find('/') != std::string::npos) {
    throw std::invalid_argument("--name " + options.name + ": not a folder's name");
  }
  return options;
}

}  // namespace ddl::stage
