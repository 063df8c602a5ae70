"""Every real program that the tests know, one after another, and a table of what came of each."""
