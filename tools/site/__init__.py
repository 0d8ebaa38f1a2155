"""What MkDocs needs to know about this repository."""
