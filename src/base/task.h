// Task: a resumable collective. An algorithm is written as a straight coroutine that awaits conditions ("peer 2 has
// published step 5", "the channel can be written"); the executor resumes it when its condition holds and serves control
// traffic in between. Not thread-safe: the holder of the driver role resumes. Destroying a Runner destroys the whole
// stack of coroutines (cancellation).
#pragma once

#include <coroutine>
#include <limits>
#include <new>
#include <utility>

#include "base/status.h"

namespace hvd {

// What a suspended coroutine waits for. Lives in the coroutine's frame.
class Condition {
 public:
  virtual bool Ready() = 0;
  // When it must be asked again at the latest; infinity: what makes it ready wakes this rank (base/polled.h).
  virtual double LookAgainInS() const { return std::numeric_limits<double>::infinity(); }

 protected:
  ~Condition() = default;
};

class Runner;

class [[nodiscard]] Task {
 public:
  struct promise_type {
    Status result;
    Runner* runner = nullptr;
    std::coroutine_handle<> parent;

    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept;
    void return_value(Status status) { result = std::move(status); }
    // Nothing in here throws but an allocation: the collective fails with a status, as for any other reason.
    void unhandled_exception() noexcept {
      try {
        throw;
      } catch (const std::bad_alloc&) {
        result = OutOfMemory();
      }
    }
  };
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      Destroy();
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() { Destroy(); }

  // co_await task: runs it to its end and yields its Status.
  auto operator co_await() &&;

 private:
  friend class Runner;
  void Destroy() {
    if (handle_) handle_.destroy();
  }
  Handle handle_;
};

// Runs one Task, step by step.
class Runner {
 public:
  explicit Runner(Task task) : task_(std::move(task)), leaf_(task_.handle_) { task_.handle_.promise().runner = this; }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Resumes while conditions hold, until the task awaits one that does not, yields, or ends. Returns true if anything
  // ran.
  bool Advance() {
    bool ran = false;
    while (!done() && (waiting_ == nullptr || waiting_->Ready())) {
      waiting_ = nullptr;
      ran = true;
      leaf_.resume();
      if (std::exchange(yielded_, false)) break;
    }
    return ran;
  }
  bool done() const { return task_.handle_.done(); }
  double LookAgainInS() const { return waiting_ != nullptr ? waiting_->LookAgainInS() : 0; }
  const Status& result() const { return task_.handle_.promise().result; }

 private:
  friend class Task;
  friend struct Task::promise_type;
  friend void SuspendOn(Task::Handle, Condition*);
  friend class Yield;

  Task task_;
  std::coroutine_handle<> leaf_;
  Condition* waiting_ = nullptr;
  bool yielded_ = false;
};

inline auto Task::promise_type::final_suspend() noexcept {
  struct Final {
    bool await_ready() noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
      promise_type& p = h.promise();
      if (!p.parent) return std::noop_coroutine();
      p.runner->leaf_ = p.parent;
      return p.parent;
    }
    void await_resume() noexcept {}
  };
  return Final{};
}

inline auto Task::operator co_await() && {
  struct Awaiter {
    Handle child;
    bool await_ready() { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> parent) {
      child.promise().parent = parent;
      child.promise().runner = parent.promise().runner;
      child.promise().runner->leaf_ = child;
      return child;
    }
    Status await_resume() { return std::move(child.promise().result); }
  };
  return Awaiter{handle_};
}

// For awaiters: the coroutine goes on once `condition`, which must live in its frame, is ready.
inline void SuspendOn(Task::Handle h, Condition* condition) { h.promise().runner->waiting_ = condition; }

// co_await Until(fn): suspends until fn() is true. fn is called by the driver, often; it must be cheap.
template <class Fn>
class Until final : public Condition {
 public:
  explicit Until(Fn fn) : fn_(std::move(fn)) {}
  bool Ready() override { return fn_(); }
  bool await_ready() { return fn_(); }
  void await_suspend(Task::Handle h) { SuspendOn(h, this); }
  void await_resume() {}

 private:
  Fn fn_;
};

// co_await Yield(): lets the driver serve control traffic, then goes on. Use between chunks of more than about 100 us
// of work.
class Yield {
 public:
  bool await_ready() { return false; }
  void await_suspend(Task::Handle h) { h.promise().runner->yielded_ = true; }
  void await_resume() {}
};

}  // namespace hvd
