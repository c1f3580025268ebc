"""Work that runs under a claim: calculations and triggers of whole tiers."""
