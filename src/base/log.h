// Log lines of the core: filtered by level, given to a sink (stderr by default). Never called on a hot path.
#pragma once

#include <string>

#include "horovod/horovod.h"

namespace hvd {

enum class LogLevel : int { kTrace = 0, kDebug = 1, kInfo = 2, kWarning = 3, kError = 4, kFatal = 5 };

void SetLogLevel(LogLevel level);
void SetLogSink(hvd_log_fn sink);              // nullptr: stderr
void SetLogPrefix(const std::string& prefix);  // "[rank 3] "
void SetLogTime(bool shown);                   // before the prefix of what goes to stderr; shown at first
bool LogEnabled(LogLevel level);
void Log(LogLevel level, const std::string& text);  // thread-safe

}  // namespace hvd
