#include "costs.h"

#include <cstdlib>
#include <utility>

namespace hvd::simulate {

bool Costs::Set(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return false;
  const std::pair<const char*, double*> members[] = {
      {"bytes_per_s", &bytes_per_s},
      {"hop_s", &hop_s},
      {"message_s", &message_s},
      {"copy_s_per_byte", &copy_s_per_byte},
      {"combine_s_per_byte", &combine_s_per_byte},
      {"local_s", &local_s},
      {"inside_s", &inside_s},
      {"inside_s_per_byte", &inside_s_per_byte},
      {"node_s", &node_s},
  };
  for (const auto& [name, member] : members) {
    if (word.substr(0, equals) != name) continue;
    char* end = nullptr;
    *member = std::strtod(word.c_str() + equals + 1, &end);
    return *end == '\0' && *member >= 0;
  }
  return false;
}

}  // namespace hvd::simulate
