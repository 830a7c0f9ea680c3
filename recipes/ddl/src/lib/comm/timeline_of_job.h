// The timelines of all ranks as one: their clocks beside rank 0's, and one file at the end.
#pragma once

#include "comm/comm.h"
#include "timeline/timeline.h"
#include "timeline/trace_file.h"

namespace ddl {

// Measures the clocks for the first time. Collective over all ranks of the job.
void begin_timeline(Comm& world, Timeline* timeline);

// Measures the clocks once more, and brings all events to rank 0, whose `file` this is; null
// elsewhere. Collective, as the job ends. Where it fails, it says so on stderr, and no more: the
// job itself has ended well.
void end_timeline(Comm& world, Timeline* timeline, TraceFile* file);

}  // namespace ddl
