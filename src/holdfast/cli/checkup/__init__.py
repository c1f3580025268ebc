"""What `holdfast doctor` looks at. A check gives findings; a fault always comes with its remedy."""
