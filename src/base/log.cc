#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <mutex>

namespace hvd {
namespace {
std::atomic<int> threshold{static_cast<int>(LogLevel::kWarning)};
std::atomic<hvd_log_fn> sink{nullptr};
std::mutex& PrefixMutex() {
  static auto* const kMutex = new std::mutex;  // leaked on purpose: logging may outlive static destruction
  return *kMutex;
}
std::string& Prefix() {
  static auto* const kPrefix = new std::string;
  return *kPrefix;
}
}  // namespace

void SetLogLevel(LogLevel level) { threshold = static_cast<int>(level); }
void SetLogSink(hvd_log_fn fn) { sink = fn; }
void SetLogPrefix(const std::string& prefix) {
  std::lock_guard<std::mutex> lock(PrefixMutex());
  Prefix() = prefix;
}
bool LogEnabled(LogLevel level) { return static_cast<int>(level) >= threshold.load(std::memory_order_relaxed); }

void Log(LogLevel level, const std::string& text) {
  if (!LogEnabled(level)) return;
  std::string line;
  {
    std::lock_guard<std::mutex> lock(PrefixMutex());
    line = Prefix() + text;
  }
  if (const hvd_log_fn fn = sink.load()) {
    fn(static_cast<int>(level), line.c_str());
    return;
  }
  line += '\n';
  // One write, so that lines of several ranks do not mix; nothing sensible can be done if stderr is gone.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace hvd
