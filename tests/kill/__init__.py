"""Real processes are killed at random moments, and no acknowledged turn is lost, trained twice or changed."""
