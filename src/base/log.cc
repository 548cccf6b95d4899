#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>

namespace hvd {
namespace {
std::atomic<int> threshold{static_cast<int>(LogLevel::kWarning)};
std::atomic<hvd_log_fn> sink{nullptr};
std::atomic<bool> time_shown{true};
std::mutex& PrefixMutex() {
  static auto* const kMutex = new std::mutex;  // leaked on purpose: logging may outlive static destruction
  return *kMutex;
}
std::string& Prefix() {
  static auto* const kPrefix = new std::string;
  return *kPrefix;
}

// "2026-11-24 03:18:09,123 ", as the launcher's own lines have it.
std::string TimeText() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(now).count() % 1000;
  tm local{};
  localtime_r(&seconds, &local);
  char text[32], whole[48];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  std::snprintf(whole, sizeof whole, "%s,%03d ", text, static_cast<int>(rest));
  return whole;
}

}  // namespace

void SetLogLevel(LogLevel level) { threshold = static_cast<int>(level); }
void SetLogSink(hvd_log_fn fn) { sink = fn; }
void SetLogTime(bool shown) { time_shown = shown; }
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
  if (time_shown) line.insert(0, TimeText());
  // One write, so that lines of several ranks do not mix; nothing sensible can be done if stderr is gone.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace hvd
