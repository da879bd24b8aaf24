"""An erasure leaves a signed receipt, and an entry in a log whose later changes are detected."""
