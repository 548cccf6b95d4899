// Which vector instructions this x86-64 processor has and the system keeps registers for. Asked of the processor
// itself: what __builtin_cpu_supports reads is filled in by the compiler's run-time library, and one of them (zig's,
// which builds the wheels) leaves it empty.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>

namespace hvd::collective::kernels {

struct Processor {
  bool avx2_f16c = false;
  bool avx512 = false;  // F, BW, DQ and VL
  bool avx512_vbmi2 = false;
};

inline Processor ThisProcessor() {
  constexpr unsigned kXsave = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29;                           // leaf 1, ecx
  constexpr unsigned kAvx2 = 1u << 5, kFBwDqVl = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);  // leaf 7, ebx
  constexpr unsigned kVbmi2 = 1u << 6;                                                               // leaf 7, ecx
  constexpr unsigned kYmm = 0x06, kZmm = 0xe6;                                                       // XCR0
  const auto all = [](unsigned word, unsigned bits) { return (word & bits) == bits; };

  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || !all(ecx, kXsave | kAvx)) return {};
  const bool f16c = all(ecx, kF16c);
  unsigned kept = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
  if (!all(kept, kYmm) || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return {};
  Processor found;
  found.avx2_f16c = all(ebx, kAvx2) && f16c;
  found.avx512 = all(kept, kZmm) && all(ebx, kFBwDqVl);
  found.avx512_vbmi2 = found.avx512 && all(ecx, kVbmi2);
  return found;
}

}  // namespace hvd::collective::kernels
#endif
