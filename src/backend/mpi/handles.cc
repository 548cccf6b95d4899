#include "backend/mpi/handles.h"

#include <algorithm>

#include "base/symbols.h"

namespace hvd::backend::mpi {
namespace {

constexpr DType kTypes[] = {DType::kUint8, DType::kInt8,   DType::kUint16, DType::kInt16,   DType::kUint32,
                            DType::kInt32, DType::kUint64, DType::kInt64,  DType::kFloat32, DType::kFloat64};
constexpr int kTypeCount = static_cast<int>(sizeof kTypes / sizeof kTypes[0]);

// What is a constant in a library's mpi.h.
struct Constants {
  Handle byte, errors_return, types[kTypeCount], ops[kReduceOpCount];
};
constexpr Constants kMpich = {0x4c00010d,
                              0x54000001,
                              {0x4c00013b, 0x4c000137, 0x4c00023c, 0x4c000238, 0x4c00043d, 0x4c000439, 0x4c00083e,
                               0x4c00083a, 0x4c00040a, 0x4c00080b},
                              {0, 0x58000003, 0, 0x58000002, 0x58000001, 0x58000004}};
constexpr Constants kStandard = {0x247,
                                 0x143,
                                 {0x241, 0x240, 0x249, 0x248, 0x251, 0x250, 0x259, 0x258, 0x210, 0x214},
                                 {0, 0x21, 0, 0x22, 0x23, 0x24}};
const char* const kOpenMpiTypes[kTypeCount] = {"uint8_t", "int8_t",   "uint16_t", "int16_t", "uint32_t",
                                               "int32_t", "uint64_t", "int64_t",  "float",   "double"};
const char* const kOpenMpiOps[kReduceOpCount] = {nullptr, "op_sum", nullptr, "op_min", "op_max", "op_prod"};

Handles From(const Constants& c) {
  Handles h;
  h.byte = c.byte;
  h.errors_return = c.errors_return;
  for (int i = 0; i < kTypeCount; ++i) h.types[static_cast<int>(kTypes[i])] = c.types[i];
  std::copy(c.ops, c.ops + kReduceOpCount, h.ops);
  return h;
}

Result<Handles> OfOpenMpi(void* library) {
  Symbols exported(library);
  const auto address = [&](const std::string& name) {
    return reinterpret_cast<Handle>(exported.Require(("ompi_mpi_" + name).c_str()));
  };
  Handles h;
  h.byte = address("byte");
  h.errors_return = address("errors_return");
  for (int i = 0; i < kTypeCount; ++i) h.types[static_cast<int>(kTypes[i])] = address(kOpenMpiTypes[i]);
  for (int i = 0; i < kReduceOpCount; ++i) {
    if (kOpenMpiOps[i] != nullptr) h.ops[i] = address(kOpenMpiOps[i]);
  }
  if (exported.missing().empty()) return h;
  return Status(Code::kBackendUnavailable,
                "the MPI library has no " + exported.missing() + ", which Open MPI exports.");
}

}  // namespace

Handle Handles::Reduction(DType dtype, ReduceOp op) const {
  const bool differs = RowOf(op).orders && IsFloat(dtype);
  return Type(dtype) == 0 || differs ? 0 : ops[static_cast<int>(op)];
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
