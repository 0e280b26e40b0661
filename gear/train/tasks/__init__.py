"""Where experience comes from and how it is kept: environments, seeds, the replay buffer."""
