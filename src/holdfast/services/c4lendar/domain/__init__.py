"""The decisions of c4lendar, pure: text to event, changes to event, references, title search."""
