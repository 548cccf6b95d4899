#include "lane/entry.h"

#include <cstddef>

namespace hvd::lane {

namespace {

void Dealloc(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Entry*>(self)->stamp);
  FreeObject(self);
}

PyObject* Arm(PyObject* self, PyObject* arguments) {
  unsigned long long op = 0, handle = 0, run = 0;
  if (!PyArg_ParseTuple(arguments, "KKK", &op, &handle, &run)) return nullptr;
  auto* entry = reinterpret_cast<Entry*>(self);
  entry->op = reinterpret_cast<hvd_op*>(op);
  entry->handle = reinterpret_cast<hvd_handle*>(handle);
  entry->run = reinterpret_cast<RunFunction>(run);
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"arm", Arm, METH_VARARGS,
     "arm(op, handle, run): the addresses of the hvd_op, of an int64 for the handle, and of hvd_run."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"stamp", T_OBJECT_EX, offsetof(Entry, stamp), 0, "the state of the session under which this is valid"},
    {"busy", T_BOOL, offsetof(Entry, busy), READONLY, "True while the lane runs it"},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char*>("The part of a prepared call that the lane reads.")},
    {0, nullptr},
};

PyType_Spec spec = {"horovod._native._lane.LaneEntry", sizeof(Entry), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                    slots};

}  // namespace

PyObject* MakeEntryType(PyObject* module) { return PyType_FromModuleAndSpec(module, &spec, nullptr); }

}  // namespace hvd::lane
