// Which instruction sets this x86-64 processor and its operating system have.
//
// Asked of the processor itself (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A, CPUID, and
// volume 1, chapter 13, for what the system saves): __builtin_cpu_supports asks the compiler's runtime, and that of the
// zig compiler, which makes the wheels, always says no.
#pragma once

#if defined(__x86_64__)

#include <cpuid.h>

#include <cstdint>

namespace hvd::collective::kernels {

struct Cpu {
  bool avx2_f16c = false;
  bool avx512 = false;        // F, BW, DQ and VL
  bool avx512_vbmi2 = false;  // the generations since Ice Lake and Zen 4

  static Cpu Ask() {
    const auto bit = [](unsigned word, int number) { return (word >> number & 1) != 0; };
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    Cpu cpu;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || !bit(ecx, 27)) return cpu;  // the system saves no wide registers
    const bool f16c = bit(ecx, 29);
    uint32_t saved = 0, high = 0;
    asm volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return cpu;
    const bool ymm = (saved & 0x06) == 0x06, zmm = (saved & 0xe6) == 0xe6;
    cpu.avx2_f16c = ymm && f16c && bit(ebx, 5);
    cpu.avx512 = zmm && bit(ebx, 16) && bit(ebx, 17) && bit(ebx, 30) && bit(ebx, 31);
    cpu.avx512_vbmi2 = cpu.avx512 && bit(ecx, 6);
    return cpu;
  }
};

}  // namespace hvd::collective::kernels

#endif
