"""What a device learns: its working model from clicks; and again, from kept interactions, to unlearn others."""
