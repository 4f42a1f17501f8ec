"""What operations are made of: one file per subject; each step checks itself and can be undone."""
