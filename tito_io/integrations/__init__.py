"""Integrations into training frameworks: one file per framework, none imported by another."""
