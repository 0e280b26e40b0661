"""What a run writes down and shows: checkpoints, metrics, start table, report."""
