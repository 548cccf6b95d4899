// The part of DLPack that the lane uses. Its layout is a public, versioned C interface
// (https://dmlc.github.io/dlpack/latest/c_api.html, version 1.3: the exchange table); declared here, because building
// this project needs no framework's header.
#pragma once

#include <cstdint>

namespace hvd::lane {

constexpr uint32_t kDlMajor = 1;  // of the layouts below: another one may change them
constexpr int32_t kDlCpu = 1;     // DlDevice::type of memory that every process of the host may read
constexpr int32_t kDlCuda = 2, kDlRocm = 10;

enum DlCode : uint8_t {
  kDlInt = 0,
  kDlUnsigned = 1,
  kDlFloat = 2,
  kDlBfloat = 4,
  kDlBool = 6,
  kDlFloat8E4m3fn = 10,
  kDlFloat8E5m2 = 12
};

struct DlDevice {
  int32_t type;
  int32_t id;
};

struct DlDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DlTensor {
  void* data;
  DlDevice device;
  int32_t ndim;
  DlDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major without gaps
  uint64_t byte_offset;
};

struct DlExchangeTable {
  uint32_t major, minor;
  DlExchangeTable* previous;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  int (*tensor_from_object)(void* object,
                            DlTensor* out);  // 0, or -1 and a Python error; the object owns what out names
  void* current_work_stream;
};

}  // namespace hvd::lane
