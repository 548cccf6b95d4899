// What an MPI library calls its objects, in the three binary interfaces that there are: that of Open MPI, in which a
// handle is the address of an object that the library exports; that of MPICH, which Intel MPI, MVAPICH and Cray MPICH
// share, in which it is a number of 32 bits; and the standard one of MPI 5.0 (chapter 20), in which it is a small
// number in a pointer. There is no mpi.h here: docs/design/0014-mpi.md.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/status.h"

namespace hvd::backend::mpi {

// A handle of any library. Both calling conventions that this code is compiled for (System V's for x86-64, AAPCS64)
// pass an int in the low half of the register or of the 8 bytes of stack that a pointer would have, and both machines
// are little-endian: a library whose handles are ints takes its part of this, and stores its part into one that is
// zero.
using Handle = uintptr_t;
static_assert(sizeof(Handle) == 8);

enum class Style : int32_t { kOpenMpi = HVD_MPI_OPEN_MPI, kMpich = HVD_MPI_MPICH, kStandard = HVD_MPI_STANDARD };

struct Handles {
  Handle byte = 0, errors_return = 0;
  // For elements of a type and for an operation that MPI has as well; 0: it has not, or means something else by it.
  Handle types[kDTypeCount] = {};
  Handle ops[kReduceOpCount] = {};

  Handle Type(DType dtype) const { return types[static_cast<int>(dtype)]; }
  // The operation, if the library is to reduce with it; 0: our kernels do. MPI does not say what it makes of a NaN in
  // Min and Max, nor how it rounds 16-bit floats.
  Handle Reduction(DType dtype, ReduceOp op) const;
};

// `library`: as dlopen has answered. Fails where it does not export what it must.
Result<Handles> HandlesOf(Style style, void* library);

}  // namespace hvd::backend::mpi
