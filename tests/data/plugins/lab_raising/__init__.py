"""One of each that a package can add: all of them raise an exception when they are used."""
