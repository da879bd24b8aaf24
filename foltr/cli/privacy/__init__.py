"""Commands that show the privacy cost of secure sums and sign their policies."""
