"""What the generator writes: the documents and rules that follow from the tables of the package."""
