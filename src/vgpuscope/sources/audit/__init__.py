"""What the public surfaces of a running system show, as plain values and not as the types that they are made from."""
