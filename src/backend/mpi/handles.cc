#include "backend/mpi/handles.h"

#include <dlfcn.h>

namespace hvd::backend::mpi {
namespace {

constexpr DType kTypes[] = {DType::kUint8, DType::kInt8,   DType::kUint16, DType::kInt16,   DType::kUint32,
                            DType::kInt32, DType::kUint64, DType::kInt64,  DType::kFloat32, DType::kFloat64};
constexpr int kTypeCount = static_cast<int>(sizeof kTypes / sizeof kTypes[0]);

// What is a constant in a library's mpi.h.
struct Constants {
  Handle byte, errors_return, types[kTypeCount], sum, product, min, max;
};
constexpr Constants kMpich = {0x4c00010d,
                              0x54000001,
                              {0x4c00013b, 0x4c000137, 0x4c00023c, 0x4c000238, 0x4c00043d, 0x4c000439, 0x4c00083e,
                               0x4c00083a, 0x4c00040a, 0x4c00080b},
                              0x58000003,
                              0x58000004,
                              0x58000002,
                              0x58000001};
constexpr Constants kStandard = {
    0x247, 0x143, {0x241, 0x240, 0x249, 0x248, 0x251, 0x250, 0x259, 0x258, 0x210, 0x214}, 0x21, 0x24, 0x22, 0x23};
const char* const kOpenMpiTypes[kTypeCount] = {"uint8_t", "int8_t",   "uint16_t", "int16_t", "uint32_t",
                                               "int32_t", "uint64_t", "int64_t",  "float",   "double"};

Handles From(const Constants& c) {
  Handles h;
  h.byte = c.byte;
  h.errors_return = c.errors_return;
  for (int i = 0; i < kTypeCount; ++i) h.types[static_cast<int>(kTypes[i])] = c.types[i];
  h.sum = c.sum;
  h.product = c.product;
  h.min = c.min;
  h.max = c.max;
  return h;
}

Result<Handles> OfOpenMpi(void* library) {
  std::string missing;
  const auto address = [&](const std::string& name) {
    void* const symbol = dlsym(library, ("ompi_mpi_" + name).c_str());
    if (symbol == nullptr) missing = "ompi_mpi_" + name;
    return reinterpret_cast<Handle>(symbol);
  };
  Handles h;
  h.byte = address("byte");
  h.errors_return = address("errors_return");
  for (int i = 0; i < kTypeCount; ++i) h.types[static_cast<int>(kTypes[i])] = address(kOpenMpiTypes[i]);
  h.sum = address("op_sum");
  h.product = address("op_prod");
  h.min = address("op_min");
  h.max = address("op_max");
  if (missing.empty()) return h;
  return Status(Code::kBackendUnavailable, "the MPI library has no " + missing + ", which Open MPI exports.");
}

}  // namespace

Handle Handles::Reduction(DType dtype, ReduceOp op) const {
  if (Type(dtype) == 0) return 0;
  switch (op) {
    case ReduceOp::kSum:
      return sum;
    case ReduceOp::kProduct:
      return product;
    case ReduceOp::kMin:
      return IsFloat(dtype) ? 0 : min;
    case ReduceOp::kMax:
      return IsFloat(dtype) ? 0 : max;
    default:
      return 0;
  }
}

Result<Handles> HandlesOf(Style style, void* library) {
  switch (style) {
    case Style::kOpenMpi:
      return OfOpenMpi(library);
    case Style::kMpich:
      return From(kMpich);
    case Style::kStandard:
      return From(kStandard);
  }
  return Status(Code::kInvalidArgument, "there is no style " + std::to_string(static_cast<int>(style)) +
                                            " of MPI handles; library and Python package are of different versions.");
}

}  // namespace hvd::backend::mpi
