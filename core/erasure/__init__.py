"""An erasure leaves a signed receipt behind, and an entry in a log that shows when it was changed."""
