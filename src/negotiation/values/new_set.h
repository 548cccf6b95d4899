// The name under which the members of a new process set ask for it, where they alone do: it says who they are, so that
// the other ranks know whose requests are missing. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "negotiation/values/rank_set.h"

namespace hvd::negotiation {

// "\x01members.0,2,3": no tensor is called so. ranks: ascending.
std::string NameOfNewSet(const std::vector<int>& ranks);
// It is such a name, or means to be one.
bool NamesNewSet(std::string_view name);
// The members; empty: it is no such name, or not as NameOfNewSet makes it.
RankSet MembersOfNewSet(std::string_view name);

}  // namespace hvd::negotiation
