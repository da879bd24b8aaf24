"""What a device writes and believes: sessions and signatures, sending until there is a receipt, large messages."""
