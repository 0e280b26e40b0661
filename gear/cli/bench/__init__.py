"""What a machine gives, measured: `gear bench`."""
