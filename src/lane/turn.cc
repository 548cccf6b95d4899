#include "lane/turn.h"

#include <utility>

namespace hvd::lane {

namespace {

constexpr int kMostSignals = 1000;  // that raise one after the other: then something else is wrong

}  // namespace

Ref Find(const Terms& terms, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(terms.table.get(), key);
  // A key that cannot be hashed: the long way refuses it, with the argument's name.
  if (found == nullptr && PyErr_ExceptionMatches(PyExc_TypeError)) PyErr_Clear();
  return Ref::Share(found);
}

Turn::Turn(const Lane& lane, Ref entry, Py_ssize_t n) : lane_(lane), found_(std::move(entry)) {
  const Terms& terms = lane.terms;
  if (!found_ || !PyObject_TypeCheck(found_.get(), reinterpret_cast<PyTypeObject*>(terms.entry_type.get()))) return;
  auto* found = reinterpret_cast<Entry*>(found_.get());
  const PyObject* stamp = PyDict_GetItemWithError(terms.session.get(), terms.stamp_name.get());
  if (found->ops == nullptr || found->n != n || found->busy || stamp == nullptr || found->stamp != stamp) return;
  ops_ = found->ops;
  n_ = found->n;
  handle_ = found->handle;
  door_ = found->door;
  found->busy = 1;
  entry_ = found;
  if (ops_[0].place != 0 && !SetStream()) {
    found->busy = 0;
    entry_ = nullptr;
  }
}

bool Turn::SetStream() {
  const Ref device = Ref::Own(PyLong_FromLong(ops_[0].place - 1));
  PyObject* asked = lane_.terms.stream.get();
  if (!device || asked == nullptr) return false;
  const Ref stream = Ref::Own(PyObject_CallFunctionObjArgs(asked, device.get(), nullptr));
  void* address = stream ? PyLong_AsVoidPtr(stream.get()) : nullptr;
  if (PyErr_Occurred() != nullptr) return false;
  for (int32_t i = 0; i < n_; ++i) ops_[i].stream = address;
  return true;
}

bool Turn::Aim(Py_ssize_t i, PyObject* tensor) {
  hvd_op& op = ops_[i];
  void* address = lane_.reader.AddressIf(tensor, {op.place, op.dtype, op.ndim, op.shape});
  if (address != nullptr && lane_.terms.hides) {
    Ref hidden = Ref::Own(PyObject_CallFunctionObjArgs(lane_.terms.hides.get(), tensor, nullptr));
    if (!hidden || PyObject_IsTrue(hidden.get()) != 0) return false;
  }
  op.input = address;
  return address != nullptr;
}

PyObject* Turn::Declined(PyObject* answer) {
  if (PyErr_Occurred() != nullptr) return nullptr;
  Py_INCREF(answer);
  return answer;
}

hvd_status Turn::Run() {
  *handle_ = 0;
  hvd_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = door_.run(ops_, n_, lane_.terms.slice_s, handle_);
  Py_END_ALLOW_THREADS;
  return status;
}

Ref Turn::MakeFinisher(PyObject* result) const {
  return Ref::Own(PyObject_CallFunction(lane_.terms.ordering.get(), "iNO", ops_[0].place - 1,
                                        PyLong_FromVoidPtr(ops_[0].stream), result));
}

Ref Turn::Submit(Wait wait, PyObject* keep, PyObject* result) {
  Ref finisher;
  if (ops_[0].place != 0 && wait != Wait::kHere) {  // else the wait is on this stream
    finisher = MakeFinisher(result);
    if (!finisher) return {};
  }
  hvd_status status;
  if (wait == Wait::kHere) {
    status = Run();
  } else {
    *handle_ = 0;
    Py_BEGIN_ALLOW_THREADS;
    status = door_.submit(ops_, n_, wait == Wait::kSoon ? HVD_SUBMIT_WILL_WAIT : 0, handle_);
    Py_END_ALLOW_THREADS;
  }
  if (status != HVD_OK && status != HVD_IN_PROGRESS) {
    (void)GoOn(entry(), status, keep);  // raises
    return {};
  }
  PyObject* flight = MakeFlight(lane_.flights(), *entry_, keep, result, finisher.get());
  return Ref::Own(OrRescue(flight, entry(), keep));
}

PyObject* OrRescue(PyObject* result, PyObject* entry, PyObject* keep) {
  for (int tries = 0; result == nullptr && tries < kMostSignals; ++tries) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Ref rescued = Ref::Own(PyObject_CallMethod(entry, "rescue", "(O)", keep));
    if (rescued) {
      PyErr_Restore(type, value, traceback);
      break;
    }
    for (PyObject* earlier : {type, value, traceback}) Py_XDECREF(earlier);
  }
  return result;
}

bool GoOn(PyObject* entry, hvd_status status, PyObject* keep) {
  PyObject* done = PyObject_CallMethod(entry, "go_on", "iO", static_cast<int>(status), keep);
  return static_cast<bool>(Ref::Own(OrRescue(done, entry, keep)));
}

}  // namespace hvd::lane
