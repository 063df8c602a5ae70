"""Programs from the package index, asked for the answers to tito's conformance vectors."""
