// What Python's kept calls derive from: the part of one that the lane reads.
#pragma once

#include "horovod/horovod.h"
#include "lane/python.h"

namespace hvd::lane {

// The functions of horovod.h that the lane calls; Python has found them in the library that it loaded.
struct Door {
  decltype(&hvd_run) run;
  decltype(&hvd_submit) submit;
  decltype(&hvd_finish) finish;
  decltype(&hvd_finish_all) finish_all;
};

struct Entry {
  PyObject_HEAD;
  PyObject* stamp;    // the state of the session under which the entry is valid
  PyObject* session;  // for what is submitted
  PyObject* what;     // "allreduce 'layer1.weight'", for messages
  hvd_op* ops;        // null: the lane must leave the entry alone
  int32_t n;          // how many
  hvd_handle* handle;
  Door door;
  // Of a result that is not of the input's shape: a tensor like the last one, and how many elements and bytes that is;
  // null or None: none is foreseen.
  PyObject* placed;
  int64_t placed_elements, placed_bytes;
  char busy;  // while the lane uses it
};

// The type, `LaneEntry`; null and a Python error on failure.
PyObject* MakeEntryType(PyObject* module);

}  // namespace hvd::lane
