// What Python's prepared calls derive from: the part of one that the lane reads.
#pragma once

#include "horovod/horovod.h"
#include "lane/python.h"

namespace hvd::lane {

using RunFunction = decltype(&hvd_run);

struct Entry {
  PyObject_HEAD;
  PyObject* stamp;  // the state of the session under which the entry is valid
  hvd_op* op;       // of one tensor; null: the lane must leave the entry alone
  hvd_handle* handle;
  RunFunction run;
  char busy;  // while the lane runs it
};

// The type, `LaneEntry`; null and a Python error on failure.
PyObject* MakeEntryType(PyObject* module);

}  // namespace hvd::lane
