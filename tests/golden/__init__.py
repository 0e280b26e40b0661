"""Golden batches: whatever changes a bit of a batch, a loader's state or a buffer is seen."""
