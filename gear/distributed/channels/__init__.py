"""What carries bytes between the ranks of a group."""
