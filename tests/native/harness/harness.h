// A test framework of one page: TEST(name) { ... } registers; EXPECT and EXPECT_EQ record failures; RanksAsThreads runs
// one function per rank. `hvd_tests [--once-more] [--junit=FILE] [filter...]` runs the tests whose name contains a
// filter, but none with what follows the "-" of a later one, and ends with the names of what failed or was
// skipped, and "N passed, N failed"; with --once-more only what fails a second time has failed. The file gets the
// seconds of each test.
#pragma once

#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace hvd::test {

// The sanitizers take ten times as long, so tests give them fewer seeds and smaller tensors. What the thread sanitizer
// looks for, an access that nothing orders, does not depend on the number of bytes.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitizer = true;
#else
inline constexpr bool kSanitizer = kThreadSanitizer;
#endif

// Whether this is compiled with GNU's C++ library, as frameworks are.
#ifdef __GLIBCXX__
inline constexpr bool kLibstdcxx = true;
#else
inline constexpr bool kLibstdcxx = false;
#endif

struct Case {
  const char* name;
  void (*body)();
};
std::vector<Case>& Cases();
struct Register {
  Register(const char* name, void (*body)()) { Cases().push_back({name, body}); }
};
void Fail(const char* file, int line, const std::string& what);  // thread-safe
void Skip(const std::string& why);                               // the test that runs: it returns without a judgement
// Of this program, where the fakes lie too.
std::string Folder();

inline void RanksAsThreads(int n, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) threads.emplace_back(body, r);
  for (auto& t : threads) t.join();
}

template <class A, class B>
void ExpectEqual(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) return;
  std::ostringstream s;
  s << text << ": " << a << " != " << b;
  Fail(file, line, s.str());
}

}  // namespace hvd::test

#define TEST(name)                                                   \
  static void Test_##name();                                         \
  static ::hvd::test::Register register_##name(#name, &Test_##name); \
  static void Test_##name()
#define EXPECT(cond)                                           \
  do {                                                         \
    if (!(cond)) ::hvd::test::Fail(__FILE__, __LINE__, #cond); \
  } while (0)
#define EXPECT_EQ(a, b) ::hvd::test::ExpectEqual((a), (b), #a " == " #b, __FILE__, __LINE__)
#define EXPECT_OK(expr)                                                                           \
  do {                                                                                            \
    if (::hvd::Status s_ = (expr); !s_.ok()) ::hvd::test::Fail(__FILE__, __LINE__, s_.message()); \
  } while (0)
