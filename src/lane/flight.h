// Flights: operations that have been submitted, as the lane makes and ends them; and the table of the numbers that
// users hold for them. horovod/_core/life/handles.py says what they mean.
#pragma once

#include "lane/entry.h"
#include "lane/python.h"

namespace hvd::lane {

// What Python's `Pending` derives from.
struct Flight {
  PyObject_HEAD;
  PyObject* session;
  PyObject* what;
  PyObject* keep;      // what the engine may still read or write
  PyObject* result;    // what waiting for it returns, unless there is a finisher
  PyObject* finisher;  // null or None: there is none
  hvd_handle handle;   // 0: the engine has forgotten it
  Door door;           // null functions: the lane leaves it alone
};

// Where flights are filed.
struct FlightTable {
  PyObject_HEAD;
  PyObject* table;    // dict: a number -> a flight
  PyObject* numbers;  // an iterator that gives each number once
  PyTypeObject* type;
  double slice_s;
};

// The types, `LaneFlight` and `FlightTable`; null and a Python error on failure.
PyObject* MakeFlightType(PyObject* module);
PyObject* MakeFlightTableType(PyObject* module, PyObject* flight_type);

// An operation of the entry that has just been submitted; null and a Python error on failure.
PyObject* MakeFlight(const FlightTable& table, const Entry& entry, PyObject* keep, PyObject* result,
                     PyObject* finisher);
// Waits for a list of flights, for some seconds at most. True: all were successful and have ended. False: no handle
// was released; there may be a Python error.
bool EndAll(const FlightTable& table, PyObject* flights, double timeout_s);
// The flight's number; null and a Python error on failure.
PyObject* File(const FlightTable& table, PyObject* flight);

}  // namespace hvd::lane
