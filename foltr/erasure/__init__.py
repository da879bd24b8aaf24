"""What an erasure leaves behind: a signed receipt, and a log of erasures that shows when it was changed."""
