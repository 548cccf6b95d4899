// Reads what a Python tensor is without calling a method of it: DLPack's exchange table, or the buffer protocol.
#pragma once

#include <cstdint>

#include "horovod/horovod.h"
#include "lane/dlpack.h"
#include "lane/python.h"

namespace hvd::lane {

// What the caller wants a tensor to be: where, and of that shape, or of any shape of so many elements.
struct Form {
  int32_t place;  // hvd_op::place
  int32_t dtype;
  int32_t ndim;
  const int64_t* shape;  // null: any
  int64_t elements = 0;  // then

  bool Empty() const;
  bool Fits(int32_t found_dtype, int32_t found_ndim, const int64_t* found) const;
  bool Lies(DlDevice found) const;
};

// Of objects of these exact types; what derives from them may be anything.
class Reader {
 public:
  // types: a tuple of at most kMostTypes types, which must outlive this. False and a Python error: it is none.
  bool Open(PyObject* types);

  // The address of a tensor of that form that is contiguous and writable. Null: it is not, or has no elements.
  void* AddressIf(PyObject* tensor, const Form& form) const;

 private:
  static constexpr int kMostTypes = 4;
  struct Entry {
    const PyTypeObject* type = nullptr;
    const DlExchangeTable* table = nullptr;  // null: the buffer protocol
  };
  Entry entries_[kMostTypes];
};

}  // namespace hvd::lane
