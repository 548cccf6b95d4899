#include "backend/cuda/packing/packing_kernels.h"

#define HVD_KERNELS(...) #__VA_ARGS__

namespace hvd::backend::cuda {
namespace {

constexpr const char* kText =
#include "backend/cuda/packing/packing_hip.inc"
    ;

}  // namespace

const char* PackingHip() { return kText; }

}  // namespace hvd::backend::cuda
