"""One module per service; see `holdfast.demo.scene`."""
