// The kernels for aarch64, whose baseline has NEON and the float16 conversions. Streaming stores are ordinary ones
// here: these cores detect a streaming write by themselves, and a non-temporal pair of stores is only a hint.
#if defined(__aarch64__)

#include <arm_neon.h>

#include "collective/kernels/table.h"

#define HVD_VECTOR_BYTES 16
#include "collective/kernels/adasum.h"
#include "collective/kernels/reduce.h"

namespace hvd::collective::kernels {
namespace {

struct Neon : Portable {
  static HVD_INLINE void WidenHalf(Raw raw, Floats& first, Floats& second) {
    const float16x8_t halves = vreinterpretq_f16_u8((uint8x16_t)raw);
    first = (Floats)vcvt_f32_f16(vget_low_f16(halves));
    second = (Floats)vcvt_high_f32_f16(halves);
  }
  static HVD_INLINE Raw NarrowHalf(Floats first, Floats second) {
    const float16x8_t halves = vcvt_high_f16_f32(vcvt_f16_f32((float32x4_t)first), (float32x4_t)second);
    return (Raw)vreinterpretq_u8_f16(halves);
  }
};

}  // namespace

const KernelTable kNeonKernels = {"neon", ReduceWith<Neon>, Stream<Neon>, DotsWith<Neon>, CombineWith<Neon>};

}  // namespace hvd::collective::kernels

#endif
