"""The generator: operator stanzas in YAML -> functions, methods, derivatives, registry, stubs."""
