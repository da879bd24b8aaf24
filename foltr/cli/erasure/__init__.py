"""Commands that forget a client, show the progress, and verify the proof."""
