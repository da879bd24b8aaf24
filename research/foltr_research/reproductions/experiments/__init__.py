"""The papers' experiments, one module for each chapter or figure, as data."""
