#include "engine/record/counters.h"

#include <algorithm>
#include <cstring>
#include <ctime>

#include "engine/wake/clock.h"

namespace hvd::engine {
namespace {

constexpr size_t kErrorWords = Counters::kErrorBytes / sizeof(uint64_t);
static_assert(HVD_COUNTER_OPERATIONS + 2 * (HVD_RECV + 1) <= HVD_COUNTER_ERROR_TURN);
static_assert(HVD_COUNTER_ERROR_TEXT + kErrorWords == HVD_COUNTER_WORDS);

// So often the processor's time is looked at, which takes a system call.
constexpr uint64_t kLookNs = 20'000'000;

// As much of it as has room before a NUL, without half a character.
size_t Fitting(std::string_view text) {
  size_t n = std::min(text.size(), Counters::kErrorBytes - 1);
  while (n > 0 && n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  return n;
}

}  // namespace

Counters::Counters(uint64_t* words)
    : own_(words == nullptr ? std::make_unique<uint64_t[]>(HVD_COUNTER_WORDS) : nullptr),
      words_(words == nullptr ? own_.get() : words) {
  // Of an engine that was before in this process, and had something under way when it ended.
  engine_ = Get(HVD_COUNTER_ENGINE) + 1;
  Set(HVD_COUNTER_ENGINE, engine_);  // first: from now on a wait of the earlier one changes nothing
  for (const int now : {HVD_COUNTER_IN_FLIGHT, HVD_COUNTER_BLOCKED_THREADS, HVD_COUNTER_BATCH_SINCE_NS}) Set(now, 0);
  for (int at = 0; at < HVD_COUNTER_WORDS; ++at) before_[at] = Get(at);
}

void Counters::CountError(std::string_view text) noexcept {
  AddShared(HVD_COUNTER_ERRORS, 1);
  uint64_t turn = Get(HVD_COUNTER_ERROR_TURN);
  // Of two at once one is the last.
  if (turn % 2 != 0 || !word(HVD_COUNTER_ERROR_TURN).compare_exchange_strong(turn, turn + 1)) return;
  std::array<uint64_t, kErrorWords> bytes{};
  std::memcpy(bytes.data(), text.data(), Fitting(text));
  for (size_t i = 0; i < kErrorWords; ++i)
    word(HVD_COUNTER_ERROR_TEXT + static_cast<int>(i)).store(bytes[i], std::memory_order_release);
  word(HVD_COUNTER_ERROR_TURN).store(turn + 2, std::memory_order_release);
}

std::string Counters::LastError() const {
  if (Since(HVD_COUNTER_ERRORS) == 0) return "";
  std::array<uint64_t, kErrorWords> bytes;
  for (size_t i = 0; i < kErrorWords; ++i) bytes[i] = Get(HVD_COUNTER_ERROR_TEXT + static_cast<int>(i));
  const char* const text = reinterpret_cast<const char*>(bytes.data());
  return std::string(text, strnlen(text, kErrorBytes - 1));
}

void Counters::BatchesBegin(double now, double submitted) {
  const uint64_t now_ns = Ns(now);
  const uint64_t since_ns = std::max(Ns(std::min(submitted, now)), Get(HVD_COUNTER_CHANGED_NS));
  if (now_ns > since_ns) Add(HVD_COUNTER_PENDING_NS, now_ns - since_ns);
  Set(HVD_COUNTER_BATCH_SINCE_NS, now_ns);
}

void Counters::BatchesEnd(double now) {
  const uint64_t now_ns = Ns(now), since_ns = Get(HVD_COUNTER_BATCH_SINCE_NS);
  if (since_ns == 0) return;
  if (now_ns > since_ns) Add(HVD_COUNTER_BATCH_NS, now_ns - since_ns);
  Set(HVD_COUNTER_BATCH_SINCE_NS, 0);
  Set(HVD_COUNTER_CHANGED_NS, now_ns);
  LookAtProcessor(now_ns);
}

uint64_t Counters::BatchNs(uint64_t now) const {
  const uint64_t since = Get(HVD_COUNTER_BATCH_SINCE_NS);
  return Get(HVD_COUNTER_BATCH_NS) + (since != 0 && now > since ? now - since : 0);
}

void Counters::LookAtProcessor(uint64_t now) {
  if (now - looked_at_processor_.load(std::memory_order_relaxed) < kLookNs) return;
  looked_at_processor_.store(now, std::memory_order_relaxed);
  timespec used;
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) != 0) return;
  Set(HVD_COUNTER_PROCESSOR_NS,
      static_cast<uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(used.tv_nsec));
}

// Several threads at once count as one: the first begins, the last ends. Of one that begins while the last one ends a
// moment may be counted twice, or not at all.
void Counters::BeginWait(double now) {
  if (!counts()) return;
  if (word(HVD_COUNTER_BLOCKED_THREADS).fetch_add(1, std::memory_order_relaxed) != 0) return;
  Set(HVD_COUNTER_BLOCKED_SINCE_NS, Ns(now));
  Set(HVD_COUNTER_BATCH_NS_THEN, BatchNs(Ns(now)));
}

void Counters::EndWait(double now) {
  if (!counts()) return;  // the thread comes back after the next engine has begun
  const uint64_t now_ns = Ns(now), since = Get(HVD_COUNTER_BLOCKED_SINCE_NS);
  const uint64_t batches = BatchNs(now_ns), then = Get(HVD_COUNTER_BATCH_NS_THEN);
  if (word(HVD_COUNTER_BLOCKED_THREADS).fetch_sub(1, std::memory_order_relaxed) != 1 || now_ns <= since) return;
  const uint64_t waited = now_ns - since;
  LookAtProcessor(now_ns);
  AddShared(HVD_COUNTER_BLOCKED_NS, waited);
  AddShared(HVD_COUNTER_TRANSFER_NS, std::min(waited, batches > then ? batches - then : 0));
}

CountedWait::CountedWait(Counters* counters, double now) : counters_(counters) { counters_->BeginWait(now); }

CountedWait::~CountedWait() { counters_->EndWait(NowS()); }

}  // namespace hvd::engine
