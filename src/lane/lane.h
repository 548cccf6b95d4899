// Repeats prepared operations on the tensors of one framework.
#pragma once

#include "lane/python.h"

namespace hvd::lane {

// The type, `Lane`; null and a Python error on failure.
PyObject* MakeLaneType(PyObject* module, PyObject* entry_type);

}  // namespace hvd::lane
