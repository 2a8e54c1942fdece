"""One of each that a package can add to rocelab, one module each."""
