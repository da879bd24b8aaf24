"""What the federator tells: retained announcements, receipts, and publishing again until the broker has them."""
