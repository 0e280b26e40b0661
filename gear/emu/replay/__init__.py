"""What a batch of GEAR's own replay takes on more ranks than are at hand."""
