// A file that is there as a whole, or not at all.
#pragma once

#include <string>

namespace ddl {

class TraceFile {
 public:
  // Reserves the name, by FILE.tmp beside it: no other process can have the same until this one is
  // done. Throws DDL_ERROR_ARGUMENT where the file cannot be written, or is being written.
  explicit TraceFile(const std::string& path);
  // Without finish(), the file is as before.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Both throw DDL_ERROR_SYSTEM, for example where the disk is full.
  void write(const std::string& text);
  // Puts what was written under its name.
  void finish();

  // Removes the files of single ranks, FILE.rank-N, that an earlier job has left.
  void remove_parts() const;

 private:
  bool lock();
  [[noreturn]] void give_up() const;

  const std::string path_;
  const std::string unfinished_;
  int file_ = -1;  // -1: not reserved, or done
};

}  // namespace ddl
