// Timeline: what happened to each tensor, as a Chrome trace (chrome://tracing, Perfetto). The engine reports events
// from any thread; a writer thread that sleeps when there is nothing to write appends them. The file is valid JSON at
// every moment: the closing bracket is written with each chunk of events and overwritten by the next. Each tensor is
// one "process" of the trace, with a row for what the engine does and more for what devices do. When that was is known
// some time later: as long as devices are at work the writer asks them now and then. Any thread may start and stop it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "engine/record/device_rows.h"

namespace hvd::engine {

class Timeline {
 public:
  Timeline() = default;
  ~Timeline() { (void)Stop(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  Status Start(const std::string& path, bool mark_cycles);
  // Waits for what devices still do, for half a second at most; what lasts longer is left out.
  Status Stop();
  bool active() const { return active_.load(std::memory_order_relaxed); }
  bool mark_cycles() const { return mark_cycles_; }

  // All are cheap no-ops while inactive. `tensor` is the engine's name of the entry.
  void Begin(const std::string& tensor, const std::string& what);
  void End(const std::string& tensor, const std::string& args_json = "");
  void RankTick(const std::string& tensor, int rank);
  void Instant(const char* what);
  // Shows the phases of a batch that is on its way, when they have been.
  void Follow(Followed batch);

 private:
  struct Event {
    char phase;
    int64_t at_us;
    std::string tensor, name, args;
    int64_t length_us = 0;  // of phase X
    int row = 0;
  };
  void Push(Event event);
  void WriterLoop();
  bool AwaitWork(std::vector<Event>* events, std::vector<Followed>* followed);
  void RenderEnded(std::string* out);
  void RenderLast(std::string* out);
  void Append(const std::string& text);
  bool WriteAt(off_t at, const std::string& text);
  void SetStop(bool stop);
  void Render(const Event& event, std::string* out);
  int PidOf(const std::string& tensor, std::string* out);

  std::atomic<bool> active_{false};
  std::atomic<bool> mark_cycles_{false};
  std::mutex life_;   // serialises Start and Stop
  std::mutex mutex_;  // guards events_, followed_, stop_
  std::condition_variable wake_;
  std::vector<Event> events_;
  std::vector<Followed> followed_;
  bool stop_ = true;
  std::thread writer_;
  // Of the writer's thread while there is one.
  Fd file_;
  off_t end_ = 0;
  bool complete_ = true;
  std::string path_;
  std::unordered_map<std::string, int> pids_;
  int64_t start_us_ = 0;
  std::unique_ptr<DeviceRows> devices_;
  double ask_devices_at_ = 0;
};

}  // namespace hvd::engine
