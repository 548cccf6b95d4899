"""How the launcher reaches an agent: ssh, a process of this machine, a call by TCP; and why that fails."""
