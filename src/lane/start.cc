// The methods that submit an operation and do not wait, or wait in Python.
#include <algorithm>
#include <utility>

#include "lane/turn.h"

namespace hvd::lane {

namespace {

// Of one tensor, in place.
Ref Start(const Lane& lane, Ref entry, PyObject* tensor, Wait wait) {
  Turn turn(lane, std::move(entry), 1);
  if (!turn.usable() || !turn.Aim(0, tensor)) return {};
  turn.op().output = turn.input();
  return turn.Submit(wait, tensor, tensor);
}

// True: all have started. False: up to one that does not fit, or with a Python error.
bool StartAll(const Lane& lane, PyObject* entries, PyObject* tensors, PyObject* started, Wait wait) {
  // Asked each time: Python code that runs meanwhile may change the lists.
  for (Py_ssize_t i = 0; i < PyList_Size(entries) && i < PyList_Size(tensors); ++i) {
    const Ref tensor = Ref::Share(PyList_GetItem(tensors, i));
    const Ref flight = Start(lane, Ref::Share(PyList_GetItem(entries, i)), tensor.get(), wait);
    if (!flight || PyList_Append(started, flight.get()) < 0) return false;
  }
  return true;
}

// Whether two of the inputs are one: results of a group must not lie on one another. Also true if there is no memory
// for the question.
bool Repeats(const Turn& turn, Py_ssize_t n) {
  auto* inputs = static_cast<const void**>(PyMem_Malloc(static_cast<size_t>(n) * sizeof(void*)));
  if (inputs == nullptr) return true;
  for (Py_ssize_t i = 0; i < n; ++i) inputs[i] = turn.input(i);
  std::sort(inputs, inputs + n);
  const bool repeats = std::adjacent_find(inputs, inputs + n) != inputs + n;
  PyMem_Free(static_cast<void*>(inputs));
  return repeats;
}

// New tensors of the same forms, as the outputs; null: one is not as foreseen, or with a Python error.
Ref PlaceNew(const Lane& lane, const Turn& turn, PyObject* tensors, Py_ssize_t n) {
  Ref outputs = Ref::Own(PyList_New(n));
  for (Py_ssize_t i = 0; outputs && i < n; ++i) {
    PyObject* made = PyObject_CallFunctionObjArgs(lane.terms.empty_like.get(), PyList_GetItem(tensors, i), nullptr);
    if (made == nullptr) return {};
    PyList_SetItem(outputs.get(), i, made);
    hvd_op& op = turn.op(i);
    op.output = lane.reader.AddressIf(made, {op.place, op.dtype, op.ndim, op.shape});
    if (op.output == nullptr) return {};
  }
  return outputs;
}

}  // namespace

PyObject* SubmitInPlace(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  if (!WantArguments(2, n)) return nullptr;
  const Lane& lane = AsLane(self);
  Ref flight = Start(lane, Find(lane.terms, arguments[0]), arguments[1], Wait::kNone);
  return flight ? File(lane.flights(), flight.get()) : Turn::Declined(Py_None);
}

PyObject* SubmitInto(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  if (!WantArguments(4, n)) return nullptr;
  const Lane& lane = AsLane(self);
  PyObject *tensor = arguments[1], *output = arguments[2];
  Turn turn(lane, Find(lane.terms, arguments[0]), 1);
  if (!turn.usable() || !turn.Aim(0, tensor)) return Turn::Declined(Py_None);
  hvd_op& op = turn.op();
  const int64_t elements = reinterpret_cast<Entry*>(turn.entry())->placed_elements;
  op.output = lane.reader.AddressIf(output, {op.place, op.dtype, 0, nullptr, elements});
  Ref keep = Ref::Own(op.output == nullptr ? nullptr : PyTuple_Pack(2, tensor, output));
  if (!keep) return Turn::Declined(Py_None);
  Ref flight = turn.Submit(Wait::kNone, keep.get(), output);
  if (!flight) return nullptr;
  Ref filed =
      Ref::Own(PyObject_SetAttrString(flight.get(), "finisher", arguments[3]) < 0 ? nullptr
                                                                                  : File(lane.flights(), flight.get()));
  return filed.Release();
}

PyObject* StartEach(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  if (!WantArguments(4, n)) return nullptr;
  const Lane& lane = AsLane(self);
  PyObject *entries = arguments[0], *tensors = arguments[1], *started = arguments[2];
  if (!PyList_Check(entries) || !PyList_Check(tensors) || !PyList_Check(started)) return Turn::Declined(Py_False);
  const double wait_s = PyFloat_AsDouble(arguments[3]);
  if (PyErr_Occurred() != nullptr) return nullptr;
  const bool all_started = StartAll(lane, entries, tensors, started, wait_s > 0 ? Wait::kSoon : Wait::kNone);
  if (!(wait_s > 0)) return Turn::Declined(Py_False);
  // Also if one was refused: it is the wait, however short, that passes on the others.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const bool ended = EndAll(lane.flights(), started, all_started ? wait_s : 0) && all_started;
  if (type != nullptr) PyErr_Restore(type, value, traceback);
  return Turn::Declined(ended ? Py_True : Py_False);
}

PyObject* StartAlike(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  if (!WantArguments(5, n)) return nullptr;
  const Lane& lane = AsLane(self);
  PyObject* tensors = arguments[1];
  const bool in_place = arguments[2] == Py_True, single = arguments[3] == Py_True, waits = arguments[4] == Py_True;
  const Py_ssize_t count = PyList_Check(tensors) ? PyList_Size(tensors) : 0;
  Turn turn(lane, Find(lane.terms, arguments[0]), count);
  if (!turn.usable()) return Turn::Declined(Py_None);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!turn.Aim(i, PyList_GetItem(tensors, i))) return Turn::Declined(Py_None);
    turn.op(i).output = turn.input(i);
  }
  if (in_place && count > 1 && Repeats(turn, count)) return Turn::Declined(Py_None);
  Ref outputs = in_place ? Ref::Share(tensors) : PlaceNew(lane, turn, tensors, count);
  Ref keep = Ref::Own(outputs ? PyTuple_Pack(2, tensors, outputs.get()) : nullptr);
  if (!keep) return Turn::Declined(Py_None);
  PyObject* result = single ? PyList_GetItem(outputs.get(), 0) : outputs.get();
  Ref flight = turn.Submit(waits ? Wait::kHere : Wait::kNone, keep.get(), result);
  return flight.Release();
}

}  // namespace hvd::lane
