#include "engine/record/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/monotonic.h"
#include "base/thread.h"

namespace hvd::engine {
namespace {

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr double kAskEveryS = 0.05;  // a device that works
constexpr double kLastWaitS = 0.5;

constexpr char kTail[] = "]\n";
constexpr off_t kTailBytes = sizeof kTail - 1;

std::string Head() {
  const auto epoch = std::chrono::system_clock::now().time_since_epoch();
  return "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"horovod\",\"start_time_since_epoch_"
         "in_micros\":" +
         std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(epoch).count()) +
         "}},\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":0,\"args\":{\"sort_index\":0}}\n" + kTail;
}

std::string Escaped(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

Status Timeline::Start(const std::string& path, bool mark_cycles) {
  std::lock_guard<std::mutex> life(life_);
  if (file_.valid())
    return Status(Code::kInvalidArgument, "a timeline is being written already; call stop_timeline() first.");
  file_.Reset(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  path_ = path;
  end_ = 0;
  complete_ = true;
  pids_.clear();
  start_us_ = NowUs();
  devices_ = std::make_unique<DeviceRows>(static_cast<double>(start_us_) * 1e-6);
  ask_devices_at_ = 0;
  if (!file_.valid() || !WriteAt(0, Head())) {
    const Status why(Code::kInvalidArgument, "cannot write the timeline '" + path + "': " + std::strerror(errno) + ".");
    file_.Reset();
    return why;
  }
  SetStop(false);
  Result<std::thread> writer = StartThread("the timeline's thread", [this] { WriterLoop(); });
  if (!writer.ok()) {
    SetStop(true);
    file_.Reset();
    return writer.status();
  }
  writer_ = std::move(*writer);
  mark_cycles_ = mark_cycles;
  active_ = true;
  return Status();
}

Status Timeline::Stop() {
  std::lock_guard<std::mutex> life(life_);
  if (!file_.valid()) return Status();
  active_ = false;
  SetStop(true);
  wake_.notify_one();
  writer_.join();
  file_.Reset();
  return complete_ ? Status() : Status(Code::kInternal, "the timeline '" + path_ + "' is incomplete.");
}

void Timeline::SetStop(bool stop) {
  std::lock_guard<std::mutex> lock(mutex_);
  stop_ = stop;
}

void Timeline::Begin(const std::string& tensor, const std::string& what) {
  if (active()) Push({'B', NowUs(), tensor, what, ""});
}
void Timeline::End(const std::string& tensor, const std::string& args_json) {
  if (active()) Push({'E', NowUs(), tensor, "", args_json});
}
void Timeline::RankTick(const std::string& tensor, int rank) {
  if (active()) Push({'X', NowUs(), tensor, std::to_string(rank), ""});
}
void Timeline::Instant(const char* what) {
  if (active()) Push({'i', NowUs(), "", what, ""});
}

void Timeline::Push(Event event) {
  bool wake;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stop_) return;  // it ended meanwhile
    wake = events_.empty();
    events_.push_back(std::move(event));
  }
  if (wake) wake_.notify_one();
}

void Timeline::Follow(Followed batch) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!stop_) followed_.push_back(std::move(batch));  // with an event, which wakes the writer
}

// Until there is something to write, or devices may be asked again. True: for the last time.
bool Timeline::AwaitWork(std::vector<Event>* events, std::vector<Followed>* followed) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto work = [this] { return stop_ || !events_.empty(); };
  if (devices_->empty()) {
    wake_.wait(lock, work);
  } else {
    wake_.wait_for(lock, std::chrono::duration<double>(ask_devices_at_ - MonotonicS()), work);
  }
  events->swap(events_);
  followed->swap(followed_);
  return stop_;
}

void Timeline::WriterLoop() {
  std::vector<Event> events;
  std::vector<Followed> followed;
  for (bool last = false; !last;) {
    last = AwaitWork(&events, &followed);
    std::string out;
    for (const Event& e : events) Render(e, &out);
    events.clear();
    for (Followed& batch : followed) devices_->Add(std::move(batch));
    followed.clear();
    if (last) {
      RenderLast(&out);
    } else if (!devices_->empty() && MonotonicS() >= ask_devices_at_) {
      RenderEnded(&out);
      ask_devices_at_ = MonotonicS() + kAskEveryS;
    }
    if (!out.empty()) Append(out + kTail);
  }
}

void Timeline::RenderEnded(std::string* out) {
  for (const DeviceRows::Shown& shown : devices_->TakeEnded()) {
    const auto begin_us = static_cast<int64_t>(shown.span.begin_s * 1e6),
               end_us = static_cast<int64_t>(shown.span.end_s * 1e6);
    const std::string row = std::to_string(shown.row);
    if (!shown.row_name.empty())
      *out += ",{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":" + std::to_string(PidOf(shown.tensor, out)) +
              ",\"tid\":" + row + ",\"args\":{\"name\":" + Escaped(shown.row_name) + "}}\n";
    Render({'X', begin_us, shown.tensor, shown.span.name, "", end_us - begin_us, shown.row}, out);
  }
}

// What they will have ended soon, too.
void Timeline::RenderLast(std::string* out) {
  const double until = MonotonicS() + kLastWaitS;
  for (RenderEnded(out); !devices_->empty() && MonotonicS() < until; RenderEnded(out))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  devices_.reset();
}

// After a failure the file stays as it was, whole; the rest is left out, and said to be so once.
void Timeline::Append(const std::string& text) {
  if (!complete_ || WriteAt(end_ - kTailBytes, text)) return;
  complete_ = false;
  Log(LogLevel::kWarning, "the timeline '" + path_ + "' cannot be written any further: " + std::strerror(errno) +
                              "; it ends here. Free space, or choose another place.");
  if (ftruncate(file_.get(), end_) == 0) (void)WriteAt(end_ - kTailBytes, kTail);
}

// True: all of it, and the file ends there.
bool Timeline::WriteAt(off_t at, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = pwrite(file_.get(), text.data() + done, text.size() - done, at + static_cast<off_t>(done));
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) done += static_cast<size_t>(n);
  }
  end_ = at + static_cast<off_t>(text.size());
  return true;
}

int Timeline::PidOf(const std::string& tensor, std::string* out) {
  if (tensor.empty()) return 0;
  auto [it, is_new] = pids_.emplace(tensor, static_cast<int>(pids_.size()) + 1);
  if (is_new) {
    const std::string pid = std::to_string(it->second);
    *out +=
        ",{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" + pid + ",\"args\":{\"name\":" + Escaped(tensor) + "}}\n";
    *out +=
        ",{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":" + pid + ",\"args\":{\"sort_index\":" + pid + "}}\n";
  }
  return it->second;
}

void Timeline::Render(const Event& e, std::string* out) {
  const int pid = PidOf(e.tensor, out);
  *out += std::string(",{\"ph\":\"") + e.phase + "\",\"pid\":" + std::to_string(pid) +
          ",\"tid\":" + std::to_string(e.row) + ",\"ts\":" + std::to_string(e.at_us - start_us_);
  if (!e.name.empty()) *out += ",\"name\":" + Escaped(e.name);
  if (e.phase == 'X') *out += ",\"dur\":" + std::to_string(e.length_us);
  if (e.phase == 'i') *out += ",\"s\":\"g\"";
  if (!e.args.empty()) *out += ",\"args\":" + e.args;
  *out += "}\n";
}

}  // namespace hvd::engine
