// The command line of ddl-stage, which ddlrun writes.
#pragma once

#include <cstdint>
#include <string>

namespace ddl::stage {

struct Options {
  std::string image;           // the file, read by rank 0 alone
  std::string sha256;          // of the file, in hex
  std::uint64_t size = 0;      // of the file, in bytes
  std::uint64_t unpacked = 0;  // bytes that it takes on a disk
  std::uint64_t files = 0;     // inodes that it takes there
  std::string place;           // the folder of this host, an absolute path
  std::string name;            // of the image's own folder there
  double keep = 0;             // seconds for which an unused image stays
};

// Reads `--NAME VALUE` pairs; throws std::invalid_argument that names what is wrong.
Options read_options(int argc, char** argv);

}  // namespace ddl::stage
