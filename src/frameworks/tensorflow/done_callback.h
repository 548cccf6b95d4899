// DoneCallback: TensorFlow's std::function<void()>, which an operator calls when it is done, taken from where it lay.
//
// TensorFlow is compiled with GNU's libstdc++, this library perhaps with another one (the wheels' has LLVM's libc++),
// whose std::function has another layout. So libstdc++'s layout is written down here: two words for the function
// object, or its address, and two functions that know what it is (bits/std_function.h of GCC; part of its ABI since
// GCC 4.5). An exception of either would be one of another library, and ends the program.
#pragma once

#include <utility>

namespace hvd::frameworks::tensorflow {

class DoneCallback {
 public:
  // `theirs`: the address of the std::function, which is empty afterwards, as after a move. What lies in the two words
  // may be moved as bytes: larger or other objects are kept by their addresses. So nothing is copied, and nothing
  // fails.
  explicit DoneCallback(void* theirs) noexcept : own_(std::exchange(*static_cast<Layout*>(theirs), {})) {}
  DoneCallback(DoneCallback&& other) noexcept : own_(std::exchange(other.own_, {})) {}
  DoneCallback& operator=(DoneCallback&&) = delete;
  ~DoneCallback() {
    if (own_.manager != nullptr) Destroy();
  }
  void operator()() const noexcept { own_.invoker(&own_.object); }

 private:
  enum Request { kTypeInfo, kAddress, kClone, kDestroy };
  struct Object {
    void* words[2] = {};
  };
  struct Layout {
    Object object;
    bool (*manager)(Object* to, const Object* from, Request request) = nullptr;
    void (*invoker)(const Object* object) = nullptr;
  };

  void Destroy() noexcept { (void)own_.manager(&own_.object, &own_.object, kDestroy); }

  Layout own_;
};

}  // namespace hvd::frameworks::tensorflow
