#include "engine/record/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/log.h"

namespace hvd::engine {
namespace {

constexpr char kTail[] = "]\n";
constexpr off_t kTailBytes = sizeof kTail - 1;
constexpr size_t kHeadBytes = 256;  // at most
constexpr size_t kMostNames = size_t{64} << 20;
constexpr char kStart[] = "\"start_time_since_epoch_in_micros\":";

template <class Clock>
int64_t Micros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
}

// Gives a file another name. `path` exists throughout, until the next file takes it, except on file systems without
// links.
bool Keep(const std::string& path, const std::string& older) {
  unlink(older.c_str());
  return link(path.c_str(), older.c_str()) == 0 || rename(path.c_str(), older.c_str()) == 0;
}

}  // namespace

std::string TraceFile::Job() const { return plan_.job.empty() ? "" : "\"job\":\"" + plan_.job + "\","; }

std::string TraceFile::Head() const {
  const std::string start = Job() + kStart + std::to_string(start_of_day_us_) + "}}";
  if (plan_.first_name.empty())
    return "[\n{\"name\":\"horovod_trace\",\"ph\":\"M\",\"pid\":0,\"args\":{" + start + "\n";
  return "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"" + plan_.first_name + "\"," +
         start + ",\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":0,\"args\":{\"sort_index\":0}}\n";
}

Status TraceFile::Open(const Plan& plan) {
  plan_ = plan;
  complete_ = true;
  names_.clear();
  start_us_ = Micros<std::chrono::steady_clock>();
  start_of_day_us_ = Micros<std::chrono::system_clock>();
  if ((plan.continues && Continue()) || Begin()) return Status();
  Status why(Code::kInvalidArgument, "cannot write the timeline '" + plan.path + "': " + std::strerror(errno) + ".");
  file_.Reset();
  return why;
}

bool TraceFile::Begin() {
  file_.Reset(open(plan_.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  return file_.valid() && WriteAt(0, Head() + kTail);
}

// The clock of the day says how long ago the file began: its writer may have been on another host.
bool TraceFile::Continue() {
  file_.Reset(open(plan_.path.c_str(), O_RDWR | O_CLOEXEC));
  char head[kHeadBytes + 1] = {};
  struct stat about;
  if (!file_.valid() || fstat(file_.get(), &about) != 0 || about.st_size < kTailBytes) return false;
  if (pread(file_.get(), head, kHeadBytes, 0) <= 0) return false;
  const char* const start = std::strstr(head, kStart);
  if (start == nullptr || head[0] != '[') return false;
  if (std::strstr(head, Job().c_str()) == nullptr) return false;  // another job's
  int64_t began_us = 0;
  std::from_chars(start + sizeof kStart - 1, head + kHeadBytes, began_us);
  if (began_us <= 0) return false;
  start_us_ -= start_of_day_us_ - began_us;
  start_of_day_us_ = began_us;
  return FindEnd(about.st_size);
}

// A writer that was killed while it wrote may have left a part of its last lines, and no end.
bool TraceFile::FindEnd(off_t size) {
  char last[4096];
  for (off_t to = size; to > 0;) {
    const off_t from = std::max<off_t>(0, to - static_cast<off_t>(sizeof last));
    if (pread(file_.get(), last, static_cast<size_t>(to - from), from) != to - from) return false;
    for (off_t i = to - from; i > 0; --i) {
      if (last[i - 1] != '\n') continue;
      const bool ended =
          from + i == size && i >= kTailBytes && std::memcmp(last + i - kTailBytes, kTail, kTailBytes) == 0;
      end_ = ended ? size : from + i + kTailBytes;
      return ended || (ftruncate(file_.get(), from + i) == 0 && WriteAt(from + i, kTail));
    }
    to = from;
  }
  return false;
}

// A part at a time, where the file has a bound: what a writer that is late has collected may be larger than that.
void TraceFile::Append(const std::string& names, const std::string& events) {
  const size_t most = plan_.most_bytes > 0 ? static_cast<size_t>(plan_.most_bytes / 4) : std::string::npos;
  std::string_view left = events;
  if (!names.empty()) AppendSome(names, "");
  while (!left.empty()) {
    size_t end = left.size() <= most ? std::string_view::npos : left.rfind('\n', most);
    if (end == std::string_view::npos && left.size() > most) end = left.find('\n');
    const std::string_view part = left.substr(0, end == std::string_view::npos ? end : end + 1);
    AppendSome("", part);
    left.remove_prefix(part.size());
  }
}

void TraceFile::AppendSome(std::string_view names, std::string_view events) {
  const auto bytes = static_cast<int64_t>(names.size() + events.size());
  const auto fixed = static_cast<int64_t>(names_.size() + kHeadBytes);
  if (complete_ && plan_.most_bytes > 0 && end_ + bytes > plan_.most_bytes && end_ > fixed) Rotate();
  if (names_.size() < kMostNames) names_ += names;
  if (!complete_) return;
  std::string text;
  text.reserve(static_cast<size_t>(bytes + kTailBytes));
  text.append(names).append(events).append(kTail);
  if (WriteAt(end_ - kTailBytes, text)) return;
  complete_ = false;
  Log(LogLevel::kWarning, "the timeline '" + plan_.path + "' cannot be written any further: " + std::strerror(errno) +
                              "; it ends here. Free space, or choose another place.");
  if (ftruncate(file_.get(), end_) == 0) (void)WriteAt(end_ - kTailBytes, kTail);
}

// The new file is whole before it gets its name. Where that fails, the old one goes on growing.
void TraceFile::Rotate() {
  const std::string next = plan_.path + ".next", older = plan_.path + ".1";
  Fd made(open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  const off_t before = end_;
  if (made.valid()) {
    std::swap(made, file_);
    const bool begun = WriteAt(0, Head() + names_ + kTail);
    if (begun && Keep(plan_.path, older) && rename(next.c_str(), plan_.path.c_str()) == 0) return;
    std::swap(made, file_);
    unlink(next.c_str());
  }
  end_ = before;
  Log(LogLevel::kWarning, "the timeline '" + plan_.path + "' has reached its bound, and cannot begin a new file: " +
                              std::strerror(errno) + "; it goes on without a bound.");
  plan_.most_bytes = 0;
}

// True: all of it, and the file ends there.
bool TraceFile::WriteAt(off_t at, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = pwrite(file_.get(), text.data() + done, text.size() - done, at + static_cast<off_t>(done));
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) done += static_cast<size_t>(n);
  }
  end_ = at + static_cast<off_t>(text.size());
  return true;
}

}  // namespace hvd::engine
