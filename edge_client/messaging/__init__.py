"""A device's messages: sessions and signatures, receipts, large messages in parts."""
