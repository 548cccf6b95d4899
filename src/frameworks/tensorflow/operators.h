// The operators that the core adds to TensorFlow: their names, inputs, outputs, attributes and static shapes.
#pragma once

#include <string>

namespace hvd::frameworks::tensorflow {

// Registers all of them; an error text, or empty.
std::string RegisterOperators();

}  // namespace hvd::frameworks::tensorflow
