// Repeats operations on the tensors of one framework.
#pragma once

#include "lane/flight.h"
#include "lane/python.h"
#include "lane/reader.h"

namespace hvd::lane {

// What Python gave; the names are those of the constructor's arguments.
struct Terms {
  Ref table;       // dict: a key -> an Entry
  Ref session;     // dict of the module whose "stamp" tells which entries are valid
  Ref hides;       // of a tensor: whether its memory holds other values than it has; null: it never does
  Ref empty_like;  // a tensor -> a new one of the same form
  Ref adapter;     // for an entry's take_other
  Ref flights;     // FlightTable
  Ref stream;      // a device -> the framework's current stream; null: tensors on GPUs are left alone
  Ref ordering;    // (device, stream, result) -> the finisher of an operation on a GPU
  Ref stamp_name;
  Ref entry_type;
  double slice_s = 0;
};

struct Lane {
  PyObject_HEAD;
  Reader reader;
  Terms terms;

  const FlightTable& flights() const { return *reinterpret_cast<FlightTable*>(terms.flights.get()); }
};

inline const Lane& AsLane(PyObject* self) { return *reinterpret_cast<Lane*>(self); }

// The type, `Lane`; null and a Python error on failure.
PyObject* MakeLaneType(PyObject* module, PyObject* entry_type, PyObject* flight_table_type);

// Its methods, as METH_FASTCALL; lane.cc says what they do.
PyObject* RunInPlace(PyObject* self, PyObject* const* arguments, Py_ssize_t n);
PyObject* RunAlike(PyObject* self, PyObject* const* arguments, Py_ssize_t n);
PyObject* RunPlaced(PyObject* self, PyObject* const* arguments, Py_ssize_t n);
PyObject* SubmitInPlace(PyObject* self, PyObject* const* arguments, Py_ssize_t n);
PyObject* SubmitInto(PyObject* self, PyObject* const* arguments, Py_ssize_t n);
PyObject* StartEach(PyObject* self, PyObject* const* arguments, Py_ssize_t n);
PyObject* StartAlike(PyObject* self, PyObject* const* arguments, Py_ssize_t n);

}  // namespace hvd::lane
