// Costs: what the simulated machines and links charge for. All times in seconds. On the command line they are
// "name=number". Every figure of a run hangs on these.
#pragma once

#include <string>
#include <vector>

namespace hvd::simulate {

// Hosts of equally many ranks each; rank = host * locals + local index, as horovodrun places them.
struct Layout {
  int hosts = 1, locals = 1;
  int size() const { return hosts * locals; }
  int host_of(int rank) const { return rank / locals; }
};

struct Costs {
  double bytes_per_s = 1.25e9 * 0.941;  // of a host's link, each direction, shared by its ranks: what TCP leaves of it
  double hop_s = 20e-6;                 // from a sender's call until a sleeping receiver reads the first byte
  double message_s = 3e-6;              // of a processor, at each end of a message
  double copy_s_per_byte = 0.15e-9;     // through a socket, at each end
  double combine_s_per_byte = 0.1e-9;   // of what arrives with what is there
  double local_s = 1e-6;                // instead of a hop, between ranks of a host
  double inside_s = 20e-6;              // a slice's work inside the hosts, before and after it travels: each
  double inside_s_per_byte = 0.125e-9;  // both together, for a byte of the slice
  double node_s = 2e-6;                 // a control frame through a node of the tree

  // Takes "name=number" for a member above; false: there is none of that name.
  bool Set(const std::string& word);
};

}  // namespace hvd::simulate
