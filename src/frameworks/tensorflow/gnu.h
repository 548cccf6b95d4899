// Strings as TensorFlow's C++ functions take and give them: in the layout of GNU's libstdc++, with which TensorFlow is
// compiled, whatever library this is compiled with (the wheels: LLVM's libc++). From libstdc++'s headers of GCC 5 and
// later, the new ABI (std::__cxx11).
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <string_view>

namespace hvd::frameworks::tensorflow {

// std::string. One that is only read may have its characters anywhere.
struct GnuString {
  const char* characters = nullptr;
  size_t size = 0;
  union {
    size_t capacity;
    char short_ones[16] = {};
  };
};
inline GnuString GnuToRead(std::string_view text) { return {text.data(), text.size(), {}}; }

// std::optional<std::string>
struct GnuOptionalString {
  GnuString value;
  bool has_value = false;

  // It had none. `allocate`: libstdc++'s operator new that answers null without memory, because TensorFlow frees what
  // this holds. False: there was none; up to 15 characters need none.
  bool Set(std::string_view text, void* (*allocate)(size_t bytes, const std::nothrow_t&)) {
    char* copy = value.short_ones;
    if (text.size() >= sizeof value.short_ones) {
      copy = static_cast<char*>(allocate(text.size() + 1, std::nothrow));
      if (copy == nullptr) return false;
      value.capacity = text.size();
    }
    std::memcpy(copy, text.data(), text.size());
    copy[text.size()] = 0;
    value.characters = copy;
    value.size = text.size();
    has_value = true;
    return true;
  }
};

// std::optional<std::string_view>
struct GnuOptionalView {
  size_t size = 0;
  const char* characters = nullptr;
  bool has_value = false;

  bool operator==(std::string_view text) const { return has_value && std::string_view(characters, size) == text; }
};

}  // namespace hvd::frameworks::tensorflow
