"""One file a service; see `holdfast.demo.scene`."""
