"""What the federator publishes: retained announcements, receipts, and repetition until the broker has them."""
