"""Moving a store to another engine while its writers go on: snapshot, catch-up, proof."""
