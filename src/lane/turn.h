// One use of a kept operation by one call of a method.
#pragma once

#include "lane/entry.h"
#include "lane/lane.h"

namespace hvd::lane {

// What the table holds for a key; null if nothing, or with a Python error.
Ref Find(const Terms& terms, PyObject* key);

// What the caller of a submission does next. kHere: it waits in the submission itself. kSoon: it waits in this
// thread, after more submissions; the operation is passed on when it waits.
enum class Wait { kNone, kSoon, kHere };

// The entry is busy from the beginning to the end.
class Turn {
 public:
  // entry: any object, or null; n: how many tensors are wanted.
  Turn(const Lane& lane, Ref entry, Py_ssize_t n);
  ~Turn() {
    if (entry_ != nullptr) entry_->busy = 0;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // False: it must not be used now.
  bool usable() const { return entry_ != nullptr; }
  // Makes the tensor the input of operation i. False: it does not fit, or there is a Python error.
  bool Aim(Py_ssize_t i, PyObject* tensor);
  // Of operation i, once it is aimed.
  hvd_op& op(Py_ssize_t i = 0) const { return ops_[i]; }
  void* input(Py_ssize_t i = 0) const { return const_cast<void*>(ops_[i].input); }
  hvd_handle handle() const { return *handle_; }
  // After a run of one whose result is in the given memory: nothing is left to do. On a GPU the engine keeps it, until
  // its end is ordered before what comes next on the stream.
  bool Ended(hvd_status status) const { return status == HVD_OK && *handle_ == 0; }
  PyObject* entry() const { return found_.get(); }

  // What a method returns that has not begun: the answer, or null if there is a Python error.
  static PyObject* Declined(PyObject* answer);

  // Both: the outputs are set, the caller holds the tensors. Other threads run meanwhile; they find the entry busy.
  hvd_status Run();
  // The flight; null and a Python error if the engine refuses, or it failed.
  Ref Submit(Wait wait, PyObject* keep, PyObject* result);

 private:
  // Of tensors on a GPU: the operation comes after what the framework's current stream does until now. False: it must
  // not be used, or there is a Python error.
  bool SetStream();
  // What is left to do for the result of tensors on a GPU when its flight has ended; null and a Python error on
  // failure.
  Ref MakeFinisher(PyObject* result) const;

  const Lane& lane_;
  Ref found_;
  Entry* entry_ = nullptr;
  // As they were at the beginning: Python code that runs meanwhile may change the entry.
  hvd_op* ops_ = nullptr;
  int32_t n_ = 0;
  hvd_handle* handle_ = nullptr;
  Door door_ = {};
};

// Passes on what Python has returned, or raised. A signal handler may raise before the first line of the function that
// takes the handle: then the engine still has the operation, and its tensors must live on. Another one may raise in
// `rescue` itself, so it is called until it ends; what was raised last comes out.
PyObject* OrRescue(PyObject* result, PyObject* entry, PyObject* keep);

// After a run that has not simply succeeded: waits on. False: it has raised.
bool GoOn(PyObject* entry, hvd_status status, PyObject* keep);

// Of a method's arguments. False, and a Python error: there are others.
inline bool WantArguments(Py_ssize_t wanted, Py_ssize_t n) {
  if (n != wanted) PyErr_Format(PyExc_TypeError, "Expected %zd arguments. Received: %zd.", wanted, n);
  return n == wanted;
}

}  // namespace hvd::lane
