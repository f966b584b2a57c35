"""Reference operators, NumPy only: one file per subject, arrays in and arrays out, no I/O and no global state."""
