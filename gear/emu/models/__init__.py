"""What operations take: by formula, by measurement, by a user's own function."""
