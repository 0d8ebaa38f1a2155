"""What the public surfaces of a running system show, read as plain values: no type of the system's own answers is used."""
