// NCCL's types and operations on elements in host memory.
#pragma once

#include <cstddef>
#include <vector>

namespace fake {

using Bytes = std::vector<unsigned char>;
constexpr int kTypes =
    10;  // ncclDataType_t: int8, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16
enum Op { kSum, kProduct, kMax, kMin, kAverage, kScaledSum };

size_t SizeOf(int type);
const char* NameOf(int type);
// to = to op from.
void Combine(int type, int op, void* to, const void* from, size_t bytes);
// What an average does with the sum of n.
void Divide(int type, void* data, size_t bytes, int n);
// What a scaled sum does with each input; `scalar` is of the type.
void Multiply(int type, void* data, size_t bytes, const void* scalar);

}  // namespace fake
