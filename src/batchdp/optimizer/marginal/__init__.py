"""Searches for Laplace strategies over many columns: which tables to measure, and with which weights."""
