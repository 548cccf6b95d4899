// What the fake profiler has besides the function by which programs attach to profilers. Exported by
// libfake_profiler.so.
//
// The environment: FAKE_PROFILER_FILE (it appends what fake_profiler_ranges gives there, line by line), FAKE_PROFILER
// ("refuse": attaching fails; "blind": it asks for no ranges).
#pragma once

extern "C" {
// A line for each range of all threads, as "2 allreduce 'w'" when it begins, with how deep it is in its thread, and as
// "2" when it ends. Returns their length.
int fake_profiler_ranges(char* text, int bytes);
}
