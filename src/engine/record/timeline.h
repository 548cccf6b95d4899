// Timeline: what happened to each tensor, as a Chrome trace (chrome://tracing, Perfetto). The engine reports events
// from any thread; a writer thread that sleeps when there is nothing to write turns them into text. On rank 0 it
// appends the text to the file, with that of the other ranks; on the others it puts it into pieces, which the holder of
// the driver role sends (drive/tracing.h, docs/design/0040-one-trace-of-all-ranks.md). When devices worked is known
// some time later: as long as they do, the writer asks them now and then. Any thread may start and stop it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "engine/record/device_rows.h"
#include "engine/record/trace_file.h"
#include "engine/record/trace_form.h"
#include "engine/record/trace_pieces.h"

namespace hvd::engine {

class Timeline {
 public:
  // What this rank writes. path: empty, it is sent to rank 0.
  struct Plan {
    std::string path;
    bool all_ranks = false;  // a process for each rank
    bool mark_cycles = false;
    bool continues = false;  // the file of an earlier epoch
    std::string job;         // that it must be of
    int64_t most_bytes = 0;  // of the file; 0: no bound
    int rank = 0;
    std::string host;
    uint64_t epoch = 0;
    // Rank 0: how long between two looks at the clocks of other hosts; 0: there are none. Others: whether their clock
    // is rank 0's.
    bool other_hosts = false;
    uint32_t number = 0;  // of what is sent
    int64_t base_us = 0;  // likewise: where its times begin, on rank 0's clock
  };

  Timeline() = default;
  ~Timeline() { (void)Stop(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // ring: has the holder of the driver role look at due(). Before the first start.
  void SetRing(std::function<void()> ring) { ring_ = std::move(ring); }
  Status Start(const Plan& plan);
  // Waits for what devices still do, for half a second at most; what lasts longer is left out.
  Status Stop();
  // Does not wait; Stop still has to be called.
  void BeginStop();
  bool active() const { return active_.load(std::memory_order_relaxed); }
  bool mark_cycles() const { return mark_cycles_.load(std::memory_order_relaxed); }
  // Where the times of the file begin. Of rank 0, while it is started.
  int64_t base_us() const { return base_us_; }

  // All are cheap no-ops while inactive. `name` is the engine's name of the entry.
  void Submitted(const std::string& name, int32_t process_set, const char* operation);
  void Failed(const std::string& name, int32_t process_set);
  void Agreed(const AgreedRequests& tensors);
  void Began(TraceEvent event);
  void Ended(const AgreedRequests& tensors, uint64_t seq, int64_t bytes);
  void Instant(const char* what);
  // Shows the phases of a batch that is on its way, when they have been.
  void Follow(Followed batch);

  // ---- with the other ranks
  // There are pieces to send; on rank 0: it is time to ask for the clocks. Any thread.
  bool due() const { return due_.load(std::memory_order_relaxed); }
  bool TakeDue() { return due() && due_.exchange(false, std::memory_order_acq_rel); }
  TracePieces& pieces() { return pieces_; }
  // Rank 0: of another rank.
  void Write(negotiation::TracePiece piece);
  // This rank's clock minus rank 0's. Until it is known, nothing is written.
  void SetClock(double offset_s, double error_s);

 private:
  struct Work {
    std::vector<TraceEvent> events;
    std::vector<Followed> followed;
    std::vector<negotiation::TracePiece> pieces;
    std::optional<std::pair<double, double>> clock;
    std::map<int, uint64_t> dropped;  // by rank
  };
  void Push(TraceEvent event);
  void WriterLoop();
  bool AwaitWork(Work* work);
  double NextLook() const;
  void Render(Work* work, bool last, TraceText* out);
  void RenderEnded(TraceText* out);
  void RenderLast(TraceText* out);
  void Deliver(const Work& work, TraceText* text, bool last);
  void Ring();
  void SetStop(bool stop);
  void Prepare(const Plan& plan);

  std::atomic<bool> active_{false}, mark_cycles_{false}, due_{false};
  std::atomic<int64_t> base_us_{0};
  std::function<void()> ring_;
  std::mutex life_;   // serialises Start and Stop
  std::mutex mutex_;  // guards work_, idle_, stop_
  std::condition_variable wake_;
  Work work_;
  size_t piece_bytes_ = 0;  // in work_
  bool idle_ = false;       // the writer sleeps until there is something
  bool stop_ = true;
  std::thread writer_;
  TracePieces pieces_;
  // Of the writer's thread while there is one.
  Plan plan_;
  TraceFile file_;
  std::unique_ptr<TraceForm> form_;
  TraceText text_;  // that is not delivered yet
  std::unique_ptr<DeviceRows> devices_;
  double ask_devices_at_ = 0, send_at_ = 0, ask_clocks_at_ = 0, clock_due_by_ = 0;
  int clock_rounds_ = 0;
  bool clock_known_ = true;
};

}  // namespace hvd::engine
