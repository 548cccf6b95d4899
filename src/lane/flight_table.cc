// Flights by their numbers, and the ways to end them.
#include "lane/flight.h"

namespace hvd::lane {

namespace {

FlightTable* AsTable(PyObject* self) { return reinterpret_cast<FlightTable*>(self); }

PyObject* New(PyTypeObject* type, PyObject* arguments, PyObject* names) {
  static const char* keywords[] = {"table", "numbers", "flight_type", "slice_s", nullptr};
  PyObject *table, *numbers, *flight_type;
  double slice_s;
  if (!PyArg_ParseTupleAndKeywords(arguments, names, "O!OO!d", const_cast<char**>(keywords), &PyDict_Type, &table,
                                   &numbers, &PyType_Type, &flight_type, &slice_s)) {
    return nullptr;
  }
  Ref base = Ref::Own(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "flight_type"));
  if (!base) return nullptr;
  if (!PyIter_Check(numbers) || flight_type == base.get() ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(flight_type), reinterpret_cast<PyTypeObject*>(base.get()))) {
    PyErr_SetString(PyExc_TypeError, "An iterator of numbers and a class that derives from LaneFlight are required.");
    return nullptr;
  }
  PyObject* self = PyType_GenericAlloc(type, 0);
  if (self == nullptr) return nullptr;
  FlightTable* made = AsTable(self);
  made->table = Ref::Share(table).Release();
  made->numbers = Ref::Share(numbers).Release();
  made->type = reinterpret_cast<PyTypeObject*>(Ref::Share(flight_type).Release());
  made->slice_s = slice_s;
  return self;
}

void Dealloc(PyObject* self) {
  Py_CLEAR(AsTable(self)->table);
  Py_CLEAR(AsTable(self)->numbers);
  Py_CLEAR(AsTable(self)->type);
  FreeObject(self);
}

// The flight if the lane may end it, else null.
Flight* Endable(const FlightTable& table, PyObject* object) {
  if (object == nullptr || !PyObject_TypeCheck(object, table.type)) return nullptr;
  auto* flight = reinterpret_cast<Flight*>(object);
  const bool plain = flight->finisher == nullptr || flight->finisher == Py_None;
  return plain && flight->handle != 0 && flight->door.finish != nullptr ? flight : nullptr;
}

PyObject* Finish(PyObject* self, PyObject* number) {
  const FlightTable& table = *AsTable(self);
  Ref found = Ref::Share(PyDict_GetItemWithError(table.table, number));
  Flight* flight = Endable(table, found.get());
  if (flight == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) PyErr_Clear();  // it cannot be hashed: the long way refuses it
    return PyErr_Occurred() != nullptr ? nullptr : Ref::Share(Py_None).Release();
  }
  hvd_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = flight->door.finish(flight->handle, table.slice_s);
  Py_END_ALLOW_THREADS;
  if (status != HVD_OK) Py_RETURN_NONE;
  flight->handle = 0;
  Ref result = Ref::Share(flight->result != nullptr ? flight->result : Py_None);
  if (PyDict_DelItem(table.table, number) == 0) return result.Release();
  if (!PyErr_ExceptionMatches(PyExc_KeyError)) return nullptr;
  PyErr_Clear();  // another thread was faster
  Py_RETURN_NONE;
}

// The engine's numbers of n flights, to be freed; null: the lane must not end them, or with a Python error.
hvd_handle* HandlesOf(const FlightTable& table, PyObject* list, Py_ssize_t n) {
  auto* handles = static_cast<hvd_handle*>(PyMem_Malloc(static_cast<size_t>(n) * sizeof(hvd_handle)));
  if (handles == nullptr) PyErr_NoMemory();
  for (Py_ssize_t i = 0; handles != nullptr && i < n; ++i) {
    const Flight* flight = Endable(table, PyList_GetItem(list, i));
    if (flight != nullptr) {
      handles[i] = flight->handle;
    } else {
      PyMem_Free(handles);
      handles = nullptr;
    }
  }
  return handles;
}

PyObject* FinishAll(PyObject* self, PyObject* list) {
  const FlightTable& table = *AsTable(self);
  const bool ended = EndAll(table, list, table.slice_s);
  return PyErr_Occurred() != nullptr ? nullptr : Ref::Share(ended ? Py_True : Py_False).Release();
}

PyMethodDef methods[] = {
    {"finish", Finish, METH_O,
     "finish(number): waits for a slice of time. The result, and the number is used up; None: nothing has changed, or "
     "there is no result."},
    {"finish_all", FinishAll, METH_O,
     "finish_all(flights): waits for a list of flights for a slice of time. True: all were successful and have ended. "
     "False: none has."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(New)},
    {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_doc, const_cast<char*>("Files flights under numbers, and ends them.")},
    {0, nullptr},
};

PyType_Spec spec = {"horovod._native._lane.FlightTable", sizeof(FlightTable), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

PyObject* MakeFlightTableType(PyObject* module, PyObject* flight_type) {
  PyObject* type = PyType_FromModuleAndSpec(module, &spec, nullptr);
  if (type != nullptr && PyObject_SetAttrString(type, "flight_type", flight_type) < 0) Py_CLEAR(type);
  return type;
}

bool EndAll(const FlightTable& table, PyObject* flights, double timeout_s) {
  const Py_ssize_t n = PyList_Check(flights) ? PyList_Size(flights) : 0;
  hvd_handle* handles = n > 0 ? HandlesOf(table, flights, n) : nullptr;
  if (handles == nullptr) return false;
  const auto finish_all = reinterpret_cast<Flight*>(PyList_GetItem(flights, 0))->door.finish_all;
  hvd_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = finish_all(handles, static_cast<int32_t>(n), timeout_s);
  Py_END_ALLOW_THREADS;
  PyMem_Free(handles);
  if (status != HVD_OK) return false;
  for (Py_ssize_t i = 0; i < PyList_Size(flights); ++i) {
    if (Flight* ended = Endable(table, PyList_GetItem(flights, i))) ended->handle = 0;
  }
  return true;
}

PyObject* File(const FlightTable& table, PyObject* flight) {
  Ref number = Ref::Own(PyIter_Next(table.numbers));
  if (!number || PyDict_SetItem(table.table, number.get(), flight) < 0) return nullptr;
  return number.Release();
}

}  // namespace hvd::lane
