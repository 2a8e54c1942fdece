"""The command line of a lab: thin commands over `rocelab.runtime.lab`, each with its table or
JSON."""
