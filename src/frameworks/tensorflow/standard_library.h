// With which C++ library TensorFlow was compiled, as its own names tell. What an operator gets from it are objects of
// that library (done_callback.h), of which only GNU's layout is known here.
#pragma once

#include <string>
#include <string_view>

namespace hvd::frameworks::tensorflow {

// What is wrong, of a library whose dynamic strings (names, each with a 0 behind it) these are; empty: nothing, a
// kernel's end is reported through libstdc++'s std::function<void()>. The proof is the name of the function that hands
// that object to every kernel, tensorflow::Device::ComputeAsync: by the C++ ABI it tells the types of the parameters,
// and std:: alone ("St") is libstdc++'s; other libraries' types live in namespaces of their own ("NSt3__1").
inline std::string ProblemWithStandardLibrary(std::string_view dynamic_strings) {
  constexpr std::string_view kFunction =
      "_ZN10tensorflow6Device12ComputeAsyncEPNS_13AsyncOpKernelEPNS_15OpKernelContextE";
  constexpr std::string_view kGnus = "St8functionIFvvEE";
  bool proven = false;
  for (size_t at = 0; (at = dynamic_strings.find(kFunction, at)) != std::string_view::npos; at += kFunction.size()) {
    const std::string_view name = dynamic_strings.substr(at, dynamic_strings.find('\0', at) - at);
    if (name.substr(kFunction.size()) != kGnus) {
      return "its kernels call back through something else than the std::function of GNU's libstdc++ (" +
             std::string(name) +
             "), whose layout is the only one known here. Use a TensorFlow that is compiled with libstdc++, as the "
             "packages on PyPI are";
    }
    proven = true;
  }
  if (proven) return "";
  return "none of its symbols shows which std::function its kernels call back through "
         "(tensorflow::Device::ComputeAsync), "
         "so it may not be that of GNU's libstdc++, the only one known here. Use a TensorFlow whose library "
         "shows its names, as the packages on PyPI do";
}

}  // namespace hvd::frameworks::tensorflow
