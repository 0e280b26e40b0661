"""Networks, by what they compute; none knows of replay, ranks or optimisers."""
