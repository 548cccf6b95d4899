#include "lane/entry.h"

#include <cstddef>

namespace hvd::lane {

namespace {

void Dealloc(PyObject* self) {
  auto* entry = reinterpret_cast<Entry*>(self);
  Py_CLEAR(entry->stamp);
  Py_CLEAR(entry->session);
  Py_CLEAR(entry->what);
  Py_CLEAR(entry->placed);
  FreeObject(self);
}

PyObject* Arm(PyObject* self, PyObject* arguments) {
  unsigned long long ops = 0, handle = 0, run = 0, submit = 0, finish = 0, finish_all = 0;
  int n = 0;
  if (!PyArg_ParseTuple(arguments, "KiK(KKKK)", &ops, &n, &handle, &run, &submit, &finish, &finish_all)) return nullptr;
  auto* entry = reinterpret_cast<Entry*>(self);
  const bool whole = handle != 0 && n > 0 && run != 0 && submit != 0 && finish != 0 && finish_all != 0;
  entry->ops = whole ? reinterpret_cast<hvd_op*>(ops) : nullptr;
  entry->n = n;
  entry->handle = reinterpret_cast<hvd_handle*>(handle);
  entry->door = {reinterpret_cast<decltype(Door::run)>(run), reinterpret_cast<decltype(Door::submit)>(submit),
                 reinterpret_cast<decltype(Door::finish)>(finish),
                 reinterpret_cast<decltype(Door::finish_all)>(finish_all)};
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"arm", Arm, METH_VARARGS,
     "arm(ops, n, handle, door): the addresses of n hvd_op, of an int64 for the handle, and of hvd_run, hvd_submit, "
     "hvd_finish and hvd_finish_all. With a 0 among them the lane leaves the entry alone."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"stamp", T_OBJECT_EX, offsetof(Entry, stamp), 0, "the state of the session under which this is valid"},
    {"session", T_OBJECT_EX, offsetof(Entry, session), 0, "the session"},
    {"what", T_OBJECT_EX, offsetof(Entry, what), 0, "for messages"},
    {"placed", T_OBJECT, offsetof(Entry, placed), 0, "a tensor like the last result, if one is foreseen"},
    {"placed_elements", T_LONGLONG, offsetof(Entry, placed_elements), 0, "of it"},
    {"placed_bytes", T_LONGLONG, offsetof(Entry, placed_bytes), 0, "of it"},
    {"busy", T_BOOL, offsetof(Entry, busy), READONLY, "True while the lane uses it"},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char*>("The part of a kept call that the lane reads.")},
    {0, nullptr},
};

PyType_Spec spec = {"horovod._native._lane.LaneEntry", sizeof(Entry), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                    slots};

}  // namespace

PyObject* MakeEntryType(PyObject* module) { return PyType_FromModuleAndSpec(module, &spec, nullptr); }

}  // namespace hvd::lane
