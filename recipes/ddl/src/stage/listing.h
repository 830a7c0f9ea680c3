// What an image's folder holds, so that a copy with holes is found before a job runs from it.
//
// Programs that clean /tmp, as systemd-tmpfiles, remove single files that nobody has read for some
// days. The list is a file beside the folder. It is read by looking at each file, not into it.
#pragma once

#include <string>

namespace ddl::stage {

// Writes what is in `folder` to `file`: type, size and time of each entry. Throws Fault.
void write_listing(const std::string& folder, const std::string& file);

// Whether all that `file` lists is in `folder`, unchanged. There may be more, as new bytecode.
bool is_whole(const std::string& folder, const std::string& file);

// Marks all that is listed as used now, unless that was done within the last hour. Times of change
// stay, since bytecode depends on them.
void mark_used(const std::string& folder, const std::string& file);

}  // namespace ddl::stage
