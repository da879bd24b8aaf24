"""Erasure in SQL: its tables, what is deleted where, the log that proves it, and the jobs that unlearn."""
