"""One buffer over many ranks: a package, so that no other of this name is found before it."""
