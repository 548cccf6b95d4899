// What the fake HIP and the fake of its compiler have in common.
#pragma once

namespace fake {

// How a code object begins that the compiler makes; behind it stand the names of its kernels, as in a text of PTX.
constexpr const char* kCodeObject = "\177ELF of fake HIP .version .target\n";

// Of its devices, and the one that the compiler knows.
constexpr const char* kArchitecture = "gfx942:sramecc+:xnack-";

}  // namespace fake
