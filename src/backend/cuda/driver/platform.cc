#include "backend/cuda/driver/platform.h"

#include <dlfcn.h>

namespace hvd::backend::cuda {
namespace {

// CUDA's of the year 2020: 11000 is 11.0. What has come later is optional in the table.
constexpr Platform kCudaPlatform = {
    .kind = Platform::kCuda,
    .name = "CUDA",
    .driver = "the CUDA driver",
    .version = "one for CUDA ",
    .origin = "It comes with the NVIDIA driver; in a container the container's runtime has to show it.",
    .update = "Update the NVIDIA driver.",
    .hides = "CUDA_VISIBLE_DEVICES may hide others",
    .oldest = 11'000,
    .major_unit = 1'000,
    .minor_unit = 10,
    .capability_major = 75,
    .capability_minor = 76,
    .memory_pools_supported = 115,
    .pools_order_streams = true,
};

// HIP's of the year 2023: 60032830 is 6.0. Its numbers for attributes are those of that version and of all since.
constexpr Platform kHipPlatform = {
    .kind = Platform::kHip,
    .name = "HIP",
    .driver = "HIP",
    .version = "HIP ",
    .origin = "It comes with ROCm, and with PyTorch's wheels for ROCm.",
    .update = "Update ROCm.",
    .hides = "HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES may hide others",
    .oldest = 60'000'000,
    .major_unit = 10'000'000,
    .minor_unit = 100'000,
    .capability_major = 23,
    .capability_minor = 61,
    .memory_pools_supported = 88,
    .pools_order_streams = false,
};

}  // namespace

const Platform& Platform::Of(void* library) {
  return dlsym(library, "hipInit") != nullptr ? kHipPlatform : kCudaPlatform;
}

const Platform& Platform::Named(const std::string& path) {
  return path.find("amdhip64") != std::string::npos ? kHipPlatform : kCudaPlatform;
}

std::string Platform::VersionText(int number) const {
  return std::to_string(number / major_unit) + "." + std::to_string(number % major_unit / minor_unit);
}

}  // namespace hvd::backend::cuda
