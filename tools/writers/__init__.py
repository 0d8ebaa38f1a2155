"""Writers of the generated files: documents and rules that follow from the tables of the package."""
