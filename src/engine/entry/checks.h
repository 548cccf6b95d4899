// What a rank can find wrong with an operation by itself. Pure.
#pragma once

#include "backend/devices.h"
#include "base/status.h"
#include "collective/batch.h"

namespace hvd::engine {

// A failure of this operation, with its name in front.
Status InvalidOperation(const hvd_op& op, const std::string& what);
// The same for a failure that has its own code and text.
Status InvalidOperation(const hvd_op& op, const Status& why);
// Not sent to the others, which would get the name with it; it is too long on them too.
Status CheckName(const hvd_op& op);
// Of a send or recv.
Status CheckPartner(const hvd_op& op, const collective::Group& group);
// All but the name. `group`: of its process set.
Status CheckOperation(const hvd_op& op, const collective::Group& group);

// Of a tensor that lies on a device. devices: null if this rank uses none.
Status CheckPlace(const hvd_op& op, const backend::Devices* devices);

}  // namespace hvd::engine
