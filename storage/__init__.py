"""What is remembered, in SQL: tables and one function per transaction."""
