"""Tests of media in token ids."""
