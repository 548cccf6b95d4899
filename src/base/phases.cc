#include "base/phases.h"

#include <algorithm>
#include <map>

#include "base/monotonic.h"

namespace hvd {

std::vector<Span> SpansBetween(const std::vector<TimedMark>& marks) {
  std::vector<Span> spans;
  std::map<void*, TimedMark> open;  // by stream: its last mark
  for (TimedMark mark : marks) {
    const auto before = open.find(mark.stream);
    if (before != open.end()) {
      mark.at_s = std::max(mark.at_s, before->second.at_s);
      if (!before->second.name.empty())
        spans.push_back({before->second.name, mark.stream, before->second.at_s, mark.at_s});
    }
    open[mark.stream] = std::move(mark);
  }
  return spans;
}

void Phases::Begin(std::string name, void* stream) {
  if (!whole_ || In(name, stream)) return;
  Result<std::shared_ptr<TimedMoment>> moment = clock_->Record(stream);
  whole_ = moment.ok();
  if (whole_) marks_.push_back({std::move(name), stream, std::move(*moment), 0});
}

void Phases::BeginNow(std::string name, void* stream) {
  marks_.push_back({std::move(name), stream, nullptr, MonotonicS()});
}

bool Phases::In(const std::string& name, void* stream) const {
  const auto last = std::find_if(marks_.rbegin(), marks_.rend(), [&](const Mark& m) { return m.stream == stream; });
  return last == marks_.rend() ? name.empty() : last->name == name;
}

void Phases::Queue(void* stream) {
  if (!In("", nullptr)) EndOnHost();
  BeginNow("QUEUE", stream);
  Begin("WAIT_FOR_DATA", stream);
}

// The last mark first: if it has not ended, the marks before it on its stream need no query.
bool Phases::Ended() const {
  return std::all_of(marks_.rbegin(), marks_.rend(),
                     [](const Mark& mark) { return mark.moment == nullptr || mark.moment->Reached(); });
}

std::vector<Span> Phases::Spans() const {
  if (!whole_) return {};
  std::vector<TimedMark> timed;
  for (const Mark& mark : marks_) {
    double at_s = mark.at_s;
    if (mark.moment != nullptr) {
      const Result<double> time = mark.moment->TimeS();
      if (!time.ok()) return {};
      at_s = *time;
    }
    timed.push_back({mark.name, mark.stream, at_s});
  }
  return SpansBetween(timed);
}

}  // namespace hvd
