"""What was trained, used: played and shown, or made to collect experience."""
