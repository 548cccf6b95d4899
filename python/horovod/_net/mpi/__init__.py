"""An MPI library that is found and opened at run time, without any of its headers: what ranks need of it to meet."""
