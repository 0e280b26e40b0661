"""How the ranks of a launch find each other."""
