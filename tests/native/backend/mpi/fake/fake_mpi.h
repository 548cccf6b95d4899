// What tests ask of the fake MPI library (fake_mpi.cc), beside MPI.
#pragma once

#include <cstdint>

// A world of n ranks: the handle of its communicator, as each of them has it.
using FakeWorld = void (*)(int n, uint64_t* handles);
// How often somebody has touched what MPI was working on, or counts did not fit together.
using FakeFaults = int (*)();
// So many of the next operations are refused.
using FakeFailNext = void (*)(int n);
// While on, no operation ends.
using FakeStall = void (*)(int on);
