// Element types: TensorFlow's numbers and the core's.
#pragma once

#include "horovod/horovod.h"

namespace hvd::frameworks::tensorflow {

struct TypePair {
  int tensorflow;
  hvd_dtype own;
};
inline constexpr TypePair kTypes[] = {
    {1, HVD_FLOAT32},  {2, HVD_FLOAT64}, {3, HVD_INT32},   {4, HVD_UINT8},        {5, HVD_INT16},
    {6, HVD_INT8},     {9, HVD_INT64},   {10, HVD_BOOL},   {14, HVD_BFLOAT16},    {17, HVD_UINT16},
    {19, HVD_FLOAT16}, {22, HVD_UINT32}, {23, HVD_UINT64}, {24, HVD_FLOAT8_E5M2}, {25, HVD_FLOAT8_E4M3FN},
};

constexpr int OwnType(int tensorflow) {
  for (const TypePair& pair : kTypes) {
    if (pair.tensorflow == tensorflow) return pair.own;
  }
  return -1;
}
constexpr int TensorflowType(int own) {
  for (const TypePair& pair : kTypes) {
    if (pair.own == own) return pair.tensorflow;
  }
  return -1;
}

}  // namespace hvd::frameworks::tensorflow
