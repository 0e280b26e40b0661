"""`gear run`: a program on several ranks, by the launcher that is here."""
