"""What a release is checked with: the public API, artefacts, licences, the oldest and newest dependencies."""
