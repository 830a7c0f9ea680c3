// The folder of this host's own disk where images are unpacked, one folder each.
//
// It belongs to the user alone (mode 0700). Beside the folder NAME there is the file NAME.lock: who
// unpacks, or removes, holds a lock on it, and its time says when the image was last used. The file
// NAME.files lists what the folder holds. While an image is unpacked, its folder is called
// .NAME.partial. A shared lock on the place keeps systemd-tmpfiles out, and one on NAME ourselves.
#pragma once

#include <cstdint>
#include <string>

#include "fault.h"

namespace ddl::stage {

enum class State : int { have = 0, need = 1, busy = 2, fault = 3 };

class Place {
 public:
  // Throws Fault unless the folder is safe and programs can run from it; makes it if need be.
  Place(std::string folder, std::string name);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // The image's folder, and the one that it is unpacked in.
  std::string prefix() const { return folder_ + "/" + name_; }
  std::string partial() const { return folder_ + "/." + name_ + ".partial"; }
  std::string listing() const { return prefix() + ".files"; }

  // `have`: it is there, whole, and marked as used now. `need`: it is not, and this process has the
  // lock.
  // `busy`: another process has it. Throws Fault if the image's folder is not ours.
  State look();

  // Removes what a killed process left, and throws Fault unless there is space. Needs the lock.
  void prepare(std::uint64_t bytes, std::uint64_t files);
  // Makes the partial folder the image's own, in the place of one with holes. Needs the lock.
  void complete();
  // Removes the partial folder. Needs the lock.
  void abandon();
  void unlock();

  // Removes other images that no process has used for `seconds`; says how many.
  int evict(double seconds) const;

  int lock_file() const { return lock_; }

 private:
  std::string folder_;
  std::string name_;
  int lock_ = -1;
  int kept_ = -1;  // the place, open and locked
  bool is_checked_ = false;
};

// Removes a folder with all that is in it, never following a link; what is not there is no matter.
void remove_tree(const std::string& path);

}  // namespace ddl::stage
