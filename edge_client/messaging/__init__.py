"""A device sends and believes messages: sessions and signatures, receipts, large messages in parts."""
