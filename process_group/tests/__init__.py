"""gear_mpi against gloo: a package, so that no other of this name is found before it."""
