#include "engine/timeline.h"

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/thread.h"

namespace hvd {
namespace {

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string Quoted(const std::string& text) {
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
  if (active())
    return Status(Code::kInvalidArgument, "a timeline is being written already; call stop_timeline() first.");
  file_ = std::fopen(path.c_str(), "we");
  if (file_ == nullptr) {
    return Status(Code::kInvalidArgument, "cannot write the timeline '" + path + "': " + std::strerror(errno) + ".");
  }
  mark_cycles_ = mark_cycles;
  first_ = true;
  stop_ = false;
  pids_.clear();
  events_.clear();
  start_us_ = NowUs();
  const auto epoch = std::chrono::system_clock::now().time_since_epoch();
  std::fprintf(file_,
               "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"horovod\",\"start_time_since_"
               "epoch_in_micros\":%lld}},\n"
               "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":0,\"args\":{\"sort_index\":0}}\n]\n",
               static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(epoch).count()));
  std::fflush(file_);
  first_ = false;
  writer_ = WithoutSignals([this] { return std::thread([this] { WriterLoop(); }); });
  active_ = true;
  return Status();
}

Status Timeline::Stop() {
  if (!active_.exchange(false)) return Status();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  writer_.join();
  const bool bad = std::ferror(file_) != 0;
  std::fclose(file_);
  file_ = nullptr;
  return bad ? Status(Code::kInternal, "the timeline could not be written completely; is the disk full?") : Status();
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
    wake = events_.empty();
    events_.push_back(std::move(event));
  }
  if (wake) wake_.notify_one();
}

void Timeline::WriterLoop() {
  std::vector<Event> batch;
  for (;;) {
    bool last;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !events_.empty(); });
      batch.swap(events_);
      last = stop_;
    }
    std::string out;
    for (const Event& e : batch) Render(e, &out);
    batch.clear();
    if (!out.empty()) {
      std::fseek(file_, -2, SEEK_CUR);  // over "]\n"
      out += "]\n";
      std::fwrite(out.data(), 1, out.size(), file_);
      std::fflush(file_);
    }
    if (last) return;
  }
}

int Timeline::PidOf(const std::string& tensor, std::string* out) {
  if (tensor.empty()) return 0;
  auto [it, is_new] = pids_.emplace(tensor, static_cast<int>(pids_.size()) + 1);
  if (is_new) {
    const std::string pid = std::to_string(it->second);
    *out +=
        ",{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" + pid + ",\"args\":{\"name\":" + Quoted(tensor) + "}}\n";
    *out +=
        ",{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":" + pid + ",\"args\":{\"sort_index\":" + pid + "}}\n";
  }
  return it->second;
}

void Timeline::Render(const Event& e, std::string* out) {
  const int pid = PidOf(e.tensor, out);
  *out += std::string(",{\"ph\":\"") + e.phase + "\",\"pid\":" + std::to_string(pid) +
          ",\"tid\":0,\"ts\":" + std::to_string(e.at_us - start_us_);
  if (!e.name.empty()) *out += ",\"name\":" + Quoted(e.name);
  if (e.phase == 'X') *out += ",\"dur\":0";
  if (e.phase == 'i') *out += ",\"s\":\"g\"";
  if (!e.args.empty()) *out += ",\"args\":" + e.args;
  *out += "}\n";
}

}  // namespace hvd
