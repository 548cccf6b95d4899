#include "api/library.h"

#include <cstddef>
#include <new>
#include <utility>

namespace hvd::api {
namespace {

std::atomic<Library*>& Place() {
  static std::atomic<Library*> place{new Library{false}};
  return place;
}

// Of the engine that there is, locked while this thread forks.
thread_local std::shared_ptr<transport::ResultHeap> locked_results;

}  // namespace

Library& Lib() { return *Place().load(std::memory_order_acquire); }

void BeforeFork() noexcept {
  {
    const std::shared_ptr<engine::Engine> engine = Current();
    locked_results = engine != nullptr ? engine->results() : nullptr;
  }  // another thread may have shut it down: what it has left is given back before the lock is taken
  if (locked_results) locked_results->BeforeFork();
}

void InForkingParent() noexcept {
  if (const auto results = std::move(locked_results)) results->AfterForkInParent();
}

// Another thread of the parent may have held any lock at the time of the fork, but that of the engine's results. So
// this takes none, and the child gets a library with locks of its own; in memory that was there, since its absence
// could not be reported. In a child's child the parent's lies there, which nobody will need again.
void InForkedChild() noexcept {
  alignas(Library) static std::byte room[sizeof(Library)];
  const Library& parents = Lib();
  engine::Engine* const engine = parents.to_detach.load();
  if (engine != nullptr) engine->DetachInChild();
  const bool forked = parents.forked || engine != nullptr;
  if (locked_results) locked_results->AfterForkInChild();
  Place().store(new (&room) Library{forked}, std::memory_order_release);
}

std::shared_ptr<engine::Engine> Current() {
  Library& lib = Lib();
  if (lib.forked) return nullptr;
  std::lock_guard<std::mutex> lock(lib.mutex);
  return lib.engine;
}

Status NotInitialized() {
  if (Lib().forked) {
    return Status(Code::kNotInitialized,
                  "this process was forked from a rank and is not a rank itself; collectives work only in the process "
                  "that called hvd.init().");
  }
  return Status(Code::kNotInitialized, "Horovod is not initialized; call hvd.init() first.");
}

}  // namespace hvd::api
