"""A seeded simulation of the gateway under faults, and a checker of what was observed."""
