"""Leadership: waiting for a federation's lease, keeping it, and noticing its loss."""
