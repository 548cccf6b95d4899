// Phases: what a device, and the host for it, does for a batch, one thing after another. Backends note where each one
// begins; a trace shows when that was, once it has been (engine/record/timeline.h). There are phases only while a trace
// is written: a moment that knows its time costs its stream a microsecond more than one that does not (docs/gpu.md).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace hvd {

// A moment in the work of a stream that knows when it came.
class TimedMoment {
 public:
  virtual ~TimedMoment() = default;
  virtual bool Reached() const = 0;
  // When it came, as MonotonicS counts. It came before the clock was compared last.
  virtual Result<double> TimeS() const = 0;
};

// The clock of a device.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  // The moment when what has been put on `stream` until now is done. Any thread.
  virtual Result<std::shared_ptr<TimedMoment>> Record(void* stream) = 0;
  // Compares it with the host's, so that moments can then be asked for their times. Takes some microseconds, and
  // milliseconds at most. Any thread.
  virtual Status Compare() = 0;
};

// A phase once it has been; times as MonotonicS counts. stream: nullptr is the host.
struct Span {
  std::string name;
  void* stream;
  double begin_s, end_s;
};

// Where a phase begins, and the one before it on its stream ends. name "": none begins.
struct TimedMark {
  std::string name;
  void* stream;
  double at_s;
};

// What lies between marks, in their order. On a stream nothing overlaps, whatever error the times have.
std::vector<Span> SpansBetween(const std::vector<TimedMark>& marks);

// Of one batch. Used by one thread at a time. What fails is shown by no trace, and is not a failure of the batch.
class Phases {
 public:
  explicit Phases(std::shared_ptr<DeviceClock> clock) : clock_(std::move(clock)) {}
  // What is put on `stream` from now on is this phase, until the next one there. Nothing happens if it is already.
  void Begin(std::string name, void* stream);
  void End(void* stream) { Begin("", stream); }
  // The same from this moment of the host on, whatever the stream does.
  void BeginNow(std::string name, void* stream);
  // The host is through with what it did, and puts work on `stream`, which first may have other work to do, then waits
  // for the batch's data.
  void Queue(void* stream);
  // What the host does from now on.
  void BeginOnHost(std::string name) { BeginNow(std::move(name), nullptr); }
  void EndOnHost() { BeginNow("", nullptr); }

  // Whether all moments have come.
  bool Ended() const;
  DeviceClock& clock() const { return *clock_; }
  // Of what has ended, after the clock has been compared. Empty: the device did not tell.
  std::vector<Span> Spans() const;

 private:
  bool In(const std::string& name, void* stream) const;

  struct Mark {
    std::string name;
    void* stream;
    std::shared_ptr<TimedMoment> moment;  // null: at_s
    double at_s;
  };
  const std::shared_ptr<DeviceClock> clock_;
  std::vector<Mark> marks_;
  bool whole_ = true;
};

}  // namespace hvd
