"""What a site installs: a package, so that no other of this name is found before it."""
